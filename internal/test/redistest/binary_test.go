package redistest

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHasTLSAsksTheProgram runs programs that complain as redis-server does about the first directive that they do not know.
func TestHasTLSAsksTheProgram(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"tls-port": false, noDirective: true} {
		path := filepath.Join(t.TempDir(), "redis-server")
		complains := "#!/bin/sh\necho \">>> '" + name + " x'\"\nexit 1\n"
		if err := os.WriteFile(path, []byte(complains), 0o700); err != nil { //nolint:gosec // it must be executable
			t.Fatal(err)
		}
		if got := (Binary{Path: path}).HasTLS(); got != want {
			t.Errorf("a program that does not know %s has TLS: %v", name, got)
		}
	}
}
