package luatxtest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// recorder is a test that may fail without failing the surrounding one.
type recorder struct {
	testing.TB

	mu       sync.Mutex
	problems []string
}

func (r *recorder) Helper()      {}
func (r *recorder) Failed() bool { return len(r.text()) > 0 }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.problems, "\n")
}

// failing returns the errors that a check reports.
func failing(t testing.TB, check func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	func() {
		defer func() {
			if v := recover(); v != nil && v != any(r) {
				panic(v)
			}
		}()
		check(r)
	}()
	return r.text()
}

// Skip ends a check without an error.
func (r *recorder) Skip(...any) { panic(r) }
