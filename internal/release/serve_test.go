package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestServeAcceptsProgramOfReadmeAndRejectsOneThatDoesNothing(t *testing.T) {
	t.Parallel()
	source, err := readmeProgram(filepath.Join("..", ".."))
	assert.Must(t, err)
	assert.Must(t, serve(t.Context(), buildHere(t, source)))
	idle := buildHere(t, "package main\n\nfunc main() { println(\"no time\") }\n")
	assert.ErrorContains(t, serve(t.Context(), idle), "no time", "a program that ends at once")
}

// buildHere compiles a program with the packages of the tree.
func buildHere(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	main, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	assert.Must(t, os.WriteFile(main, []byte(source), 0o600))
	_, err := command(t.Context(), ".", nil, "go", "build", "-o", binary, main)
	assert.Must(t, err)
	return binary
}
