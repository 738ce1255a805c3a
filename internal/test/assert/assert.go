// Package assert holds the checks that most tests repeat.
package assert

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Must ends the test unless every error is nil.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// NoError fails the test unless the error is nil, and goes on. The format says what returned the error.
func NoError(t testing.TB, err error, format string, args ...any) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// Is fails the test unless the error is the target, as errors.Is compares them, and goes on. The format says what returned the error.
func Is(t testing.TB, err, target error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: error %v, want %v", fmt.Sprintf(format, args...), err, target)
	}
}

// Equal fails the test unless got is what the test wants, and goes on. The format says what got is.
func Equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// ErrOf returns the error of a call whose result the test does not need.
func ErrOf[T any](_ T, err error) error { return err }

// ErrorContains fails the test unless there is an error that holds a text, and goes on. The format says what returned the error.
func ErrorContains(t testing.TB, err error, text, format string, args ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: error %v, want one with %q", fmt.Sprintf(format, args...), err, text)
	}
}
