package sqltx

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Dialect describes the syntax and the behavior of a database. PostgreSQL, MySQL and SQLite return the known dialects. For a
// similar database, change fields of a copy. Package sqltest has a suite that every dialect must pass.
//
// Statements have ? for an argument. In the fields below, %[1]s is the quoted name of the table.
type Dialect struct {
	// Name is the name of the dialect in errors.
	Name string
	// Numbered writes arguments as $1, $2 instead of ?.
	Numbered bool
	// Quote is the character around identifiers.
	Quote string
	// InboxSchema and OutboxSchema create the tables if they do not exist. %[2]s is the name of the table without quotes and
	// schema, for the names of indexes. %[3]s is the quoted schema and a dot, or empty.
	InboxSchema, OutboxSchema []string
	// InitLock makes concurrent runs of Init wait for each other, inside their transactions. Defaults to none.
	InitLock string
	// OnDuplicate ends an INSERT that leaves an existing row unchanged, without an error. The number of affected rows is then not
	// one.
	OnDuplicate string
	// SkipLocked ends a SELECT that locks its rows and skips rows that others have locked. Defaults to none, for databases with
	// one writer at a time.
	SkipLocked string
	// Returning means that UPDATE has a RETURNING clause.
	Returning bool
	// NowMillis is the database's time in milliseconds since 1970, as an integer.
	NowMillis string
	// Ago is the time a number of milliseconds ago, in the type of the created_at columns. Its only argument is that number.
	Ago string
	// DeleteSome deletes about as many rows as its last argument. %[1]s is the table, and %[2]s the condition, which has one
	// argument and may occur more than once.
	DeleteSome string
	// OrderingKeys selects the ordering keys of unpublished rows, ordering_key, in ascending order: those after its first argument,
	// at most as many as its second. %[1]s is the table. It should read one row of each key.
	OrderingKeys string
	// Notify notifies the listeners of the channel that is its only argument, at the commit. Defaults to none.
	Notify string
	// Before and After run on the connection before and after each transaction. Unless the transaction was committed, a ROLLBACK
	// precedes After.
	Before, After []string
	// Guarded means that the database may end a transaction itself, for example after a deadlock, and run the following
	// statements in another one. Each transaction then has a savepoint, and does not commit if the savepoint is gone.
	Guarded bool
	// Isolation is the isolation level of the library's own transactions: claims and cleanups.
	Isolation sql.IsolationLevel
	// Retryable reports whether a transaction failed because of a concurrent one, and may succeed if it runs again.
	Retryable func(error) bool
}

// drivers maps the types of drivers to dialects.
var drivers = []struct {
	part    string
	dialect func() Dialect
}{
	{"stdlib.", PostgreSQL},
	{"pgx", PostgreSQL},
	{"pq.", PostgreSQL},
	{"postgres", PostgreSQL},
	{"mysql", MySQL},
	{"mariadb", MySQL},
	{"sqlite", SQLite},
}

// DialectOf returns the dialect of the database's driver. It does not ask the server. If the driver is unknown, the error names
// the setting to use.
func DialectOf(db *sql.DB) (Dialect, error) {
	if db == nil {
		return Dialect{}, errors.New("DB is nil; set DB or Dialect")
	}
	name := fmt.Sprintf("%T", db.Driver())
	for _, driver := range drivers {
		if strings.Contains(strings.ToLower(name), driver.part) {
			return driver.dialect(), nil
		}
	}
	return Dialect{}, fmt.Errorf("the dialect of driver %s is unknown; set Dialect", name)
}

// dialectOr returns d if it is set, and otherwise the dialect of the driver.
func dialectOr(d Dialect, db *sql.DB) (Dialect, error) {
	if d.Name != "" {
		return d, nil
	}
	return DialectOf(db)
}

// identifier matches a part of a table's name. Quotes would allow more characters, but a name with a quote in it is a mistake.
var identifier = regexp.MustCompile(`^[\pL_][\pL\pN_$ -]*$`)

// maxName is the maximum size of a name, in bytes. It leaves room for the names of indexes.
const maxName = 48

// table is the name of a table as statements contain it.
type table struct {
	quoted string
	plain  string // without the schema, for the names of indexes
	schema string // quoted, with a dot; empty if the name has none
}

// table checks and quotes a name with or without a schema.
func (d Dialect) table(name string) (table, error) {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if !identifier.MatchString(part) || len(part) > maxName || len(parts) > 2 {
			return table{}, fmt.Errorf("the table's name is %q; use a name, or schema.name, of letters, digits, _, $, - and spaces, at most %d bytes each", name, maxName)
		}
		parts[i] = d.Quote + part + d.Quote
	}
	t := table{quoted: strings.Join(parts, "."), plain: name[strings.LastIndex(name, ".")+1:]}
	t.schema = strings.TrimSuffix(t.quoted, parts[len(parts)-1])
	return t, nil
}

// statement formats a statement for a table.
func (d Dialect) statement(format string, t table, more ...any) string {
	return d.Bind(fmt.Sprintf(strings.ReplaceAll(format, "NOW_MS", d.NowMillis), append([]any{t.quoted}, more...)...))
}

// Bind replaces each ? of a statement by the dialect's placeholder. The statement must not contain other question marks.
func (d Dialect) Bind(statement string) string {
	if !d.Numbered {
		return statement
	}
	var out strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(statement, "?")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString("$" + strconv.Itoa(n))
		statement = after
	}
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// sqlState returns the SQLSTATE of a PostgreSQL driver's error, or "".
func sqlState(err error) string {
	if stated, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return stated.SQLState()
	}
	return ""
}

// errorNumber returns the number in a field of a driver's error, or from its method Code. It uses reflection, because this
// package does not import the drivers.
func errorNumber(err error, field string) (int64, bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, inner := range joined.Unwrap() {
				if n, ok := errorNumber(inner, field); ok {
					return n, true
				}
			}
			return 0, false
		}
		if coded, ok := err.(interface{ Code() int }); ok {
			return int64(coded.Code()), true
		}
		value := reflect.Indirect(reflect.ValueOf(err))
		if value.Kind() != reflect.Struct {
			continue
		}
		switch number := value.FieldByName(field); {
		case !number.IsValid():
		case number.CanInt():
			return number.Int(), true
		case number.CanUint():
			return int64(number.Uint()), true //nolint:gosec // the number of an error
		}
	}
	return 0, false
}
