package redistest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

// TestHasTLSRunsTheProgram runs programs that reject the first unknown directive as redis-server does.
func TestHasTLSRunsTheProgram(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"tls-port": false, noDirective: true} {
		path := filepath.Join(t.TempDir(), "redis-server")
		script := "#!/bin/sh\necho \">>> '" + name + " x'\"\nexit 1\n"
		assert.Must(t, os.WriteFile(path, []byte(script), 0o700))
		assert.Equal(t, (Binary{Path: path}).HasTLS(), want, "HasTLS of a program that does not know %s", name)
	}
}
