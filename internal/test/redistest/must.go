package redistest

import (
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

// Must ends the test unless every error is nil.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	assert.Must(t, errs...)
}
