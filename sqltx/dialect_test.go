package sqltx

import (
	"errors"
	"fmt"
	"testing"
)

// The forms in which drivers give the code of an error: a method, a signed and an unsigned field, and a state.
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

func TestWhichErrorsOfADatabaseAreWorthAnotherTry(t *testing.T) {
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
			// BUSY and LOCKED, also with an extended code, which is in the bits above the lowest eight
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
