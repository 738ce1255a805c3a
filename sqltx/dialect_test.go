package sqltx

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The forms of error codes in drivers: a method, a signed and an unsigned field, and a state.
type (
	codedError  int
	codeError   struct{ Code int }
	mysqlError  struct{ Number uint16 }
	stateError  string
	silentError struct{ Text string }
)

func (e codedError) Error() string    { return fmt.Sprint("code ", int(e)) }
func (e codedError) Code() int        { return int(e) }
func (e codeError) Error() string     { return fmt.Sprint("code ", e.Code) }
func (e *mysqlError) Error() string   { return fmt.Sprint("number ", e.Number) }
func (e stateError) Error() string    { return "state " + string(e) }
func (e stateError) SQLState() string { return string(e) }
func (e silentError) Error() string   { return e.Text }

func TestDialectsRetryOnlyErrorsOfConcurrentTransactions(t *testing.T) {
	t.Parallel()
	wrapped := func(err error) error { return fmt.Errorf("insert: %w", errors.Join(errors.New("first"), err)) }
	for name, c := range map[string]struct {
		dialect    Dialect
		again, not []error
	}{
		"postgres": {PostgreSQL(), []error{stateError("40001"), wrapped(stateError("40P01"))}, []error{stateError("23505"), codedError(40001), errors.New("40001")}},
		"mysql": {
			MySQL(),
			[]error{&mysqlError{1213}, wrapped(&mysqlError{1020})},
			[]error{&mysqlError{1062}, &mysqlError{1214}, &mysqlError{1021}, stateError("1213"), errors.New("1213")},
		},
		"sqlite": {
			SQLite(),
			// BUSY and LOCKED, also with an extended code, which is in the bits above the lowest eight.
			[]error{codedError(5), codedError(6), codeError{5}, codedError(5 | 1<<8), codedError(6 | 2<<8), wrapped(codedError(5 | 2<<8)), silentError{"database is locked"}},
			[]error{codedError(1), codedError(4), codedError(7), codedError(19), codedError(19 | 8<<8), codedError(1 << 8), silentError{"no such table"}},
		},
	} {
		for _, err := range c.again {
			if !c.dialect.Retryable(err) {
				t.Errorf("%s: %v is not worth another try", name, err)
			}
		}
		for _, err := range append(c.not, nil) {
			if c.dialect.Retryable(err) {
				t.Errorf("%s: %v is worth another try", name, err)
			}
		}
	}
}

func TestTableAcceptsOnlyNamesThatCanBeQuoted(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 48)
	for _, name := range []string{"t", "_t", "T9$ -", long, long + "." + long, "größe"} {
		if _, err := MySQL().table(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "9t", "a.b.c", "a.", ".a", "a`b", `a"b`, "a;b", long + "x", "s." + long + "x"} {
		if quoted, err := MySQL().table(name); err == nil {
			t.Errorf("%q is taken, as %s", name, quoted.quoted)
		}
	}
	got, err := MySQL().table("shop.orders")
	if want := (table{"`shop`.`orders`", "orders", "`shop`."}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestStoredKeysAreBoundedAndErrorsAreCutAtRunes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": true, strings.Repeat("x", 255): true, strings.Repeat("x", 256): false, "a\x00": false, "a\xff": false} {
		if err := storable("the key", text); (err == nil) != want {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
	for text, want := range map[string]string{
		"refused": "refused", "a\x00b\xffc": "abc", strings.Repeat("x", 1024): strings.Repeat("x", 1024), strings.Repeat("x", 1025): strings.Repeat("x", 1024),
		strings.Repeat("x", 1023) + "é": strings.Repeat("x", 1023),
	} {
		if got := clip(errors.New(text)); got != want {
			t.Errorf("%d bytes become %d, want %d", len(text), len(got), len(want))
		}
	}
}
