package redistest

import (
	"errors"
	"testing"
)

// Must ends the test unless every error is nil.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
