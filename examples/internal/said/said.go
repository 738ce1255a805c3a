// Package said checks the examples: each program prints the output in its package comment.
package said

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

// Main runs the tests of an example, and fails if they leave something behind.
func Main(m *testing.M) { redistest.Main(m) }

// Check runs an example, and requires that it prints the output in its comment.
func Check(t testing.TB, run func(ctx context.Context, out io.Writer) error) {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	Require(t, out.String())
}

// Require fails the test unless the output is the last indented block of the comment before package main, in main.go.
func Require(t testing.TB, output string) {
	t.Helper()
	if want := promised(t); output != want || want == "" {
		t.Errorf("it prints\n%s\nand its comment says\n%s", output, want)
	}
}

func promised(t testing.TB) string {
	t.Helper()
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	comment, _, _ := strings.Cut(string(source), "\npackage main")
	block := ""
	for line := range strings.Lines(comment + "\n") {
		switch text, indented := strings.CutPrefix(line, "//\t"); {
		case indented:
			block += text
		case strings.Contains(line, "print"):
			block = ""
		}
	}
	return block
}
