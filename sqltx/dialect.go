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

// Dialect is how a database differs from others: its words, and where it needs care. PostgreSQL, MySQL and SQLite return
// the ones that are known; a database that is like one of them is a copy with fields changed. Package sqltest has a
// suite that every dialect must pass.
//
// Statements are written with ? for an argument; a %[1]s in a field below is the quoted name of the table.
type Dialect struct {
	// Name is the dialect's name in errors.
	Name string
	// Numbered writes arguments as $1, $2 rather than as ?.
	Numbered bool
	// Quote is the character around identifiers.
	Quote string
	// InboxSchema and OutboxSchema create the tables if they do not exist. A %[2]s is the name of the table without quotes
	// and schema, with which the names of indexes begin. A %[3]s is the quoted schema and a dot, or empty.
	InboxSchema, OutboxSchema []string
	// InitLock makes those who run Init at the same time wait for each other, inside its transaction. Defaults to none.
	InitLock string
	// OnDuplicate ends an INSERT such that a row that exists is left as it is, without an error, and counts as anything
	// but one affected row.
	OnDuplicate string
	// SkipLocked ends a SELECT that locks its rows and passes over those that others have locked. Defaults to none, for
	// databases with one writer at a time.
	SkipLocked string
	// Returning says that UPDATE has a RETURNING clause.
	Returning bool
	// NowMillis is the database's clock: milliseconds since 1970, as an integer.
	NowMillis string
	// Ago is the moment a number of milliseconds before now, in the type of the created_at columns; its one argument is
	// that number.
	Ago string
	// DeleteSome deletes about as many rows as its last argument says. %[1]s is the table, %[2]s the condition, which has
	// one argument and may occur more than once.
	DeleteSome string
	// Notify wakes those who listen to the channel that is its one argument, at the commit. Defaults to none.
	Notify string
	// Before and After are run on the connection around each transaction.
	Before, After []string
	// Guarded says that the database may end a transaction by itself, on a deadlock say, and take what follows for
	// another one. Each transaction is then held by a savepoint, and is not committed where that is gone.
	Guarded bool
	// Isolation is that of the library's own transactions: claims and cleanups.
	Isolation sql.IsolationLevel
	// Retryable says whether a transaction failed for one that ran beside it, and may succeed when it is run again.
	Retryable func(error) bool
}

// drivers tells dialects by the type of the driver.
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

// DialectOf tells the dialect by the driver, without asking the server. The error says what to set where it cannot.
func DialectOf(db *sql.DB) (Dialect, error) {
	if db == nil {
		return Dialect{}, errors.New("DB is nil: give the *sql.DB, or set Dialect")
	}
	name := fmt.Sprintf("%T", db.Driver())
	for _, driver := range drivers {
		if strings.Contains(strings.ToLower(name), driver.part) {
			return driver.dialect(), nil
		}
	}
	return Dialect{}, fmt.Errorf("the dialect of driver %s is unknown: set Dialect", name)
}

// dialectOr is the dialect that was set, else that of the driver.
func dialectOr(d Dialect, db *sql.DB) (Dialect, error) {
	if d.Name != "" {
		return d, nil
	}
	return DialectOf(db)
}

// identifier is a part of a table's name. Quoting would carry more, but a name with a quote in it is an accident.
var identifier = regexp.MustCompile(`^[\pL_][\pL\pN_$ -]*$`)

// maxName leaves room for the names of indexes, in bytes.
const maxName = 48

// table is a table's name, as statements have it.
type table struct {
	quoted string
	plain  string // without the schema, for the names of indexes
	schema string // quoted, with a dot after it; empty if the name has none
}

// table checks and quotes a name, with or without a schema before it.
func (d Dialect) table(name string) (table, error) {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if !identifier.MatchString(part) || len(part) > maxName || len(parts) > 2 {
			return table{}, fmt.Errorf("the table's name is %q: use a name, or schema.name, of letters, digits, _, $, - and spaces, at most %d bytes each", name, maxName)
		}
		parts[i] = d.Quote + part + d.Quote
	}
	t := table{quoted: strings.Join(parts, "."), plain: name[strings.LastIndex(name, ".")+1:]}
	t.schema = strings.TrimSuffix(t.quoted, parts[len(parts)-1])
	return t, nil
}

// statement writes a statement for a table.
func (d Dialect) statement(format string, t table, more ...any) string {
	return d.Bind(fmt.Sprintf(strings.ReplaceAll(format, "NOW_MS", d.NowMillis), append([]any{t.quoted}, more...)...))
}

// Bind writes the arguments of a statement, each a ?, as the dialect has them. The statement has no other question mark.
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

// marks is a list of n arguments.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// sqlState is the SQLSTATE that a PostgreSQL driver's error tells of.
func sqlState(err error) string {
	if stated, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return stated.SQLState()
	}
	return ""
}

// errorNumber is the number that a driver's error holds in a field or returns from a method Code: the drivers themselves
// are not known here.
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
