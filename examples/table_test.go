// Package examples contains programs to copy from. README.md lists them in a table that is checked here.
package examples

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

// longer lists the examples that may exceed maxLines, for reasons in README.md.
var longer = []string{"swap", "either"}

const maxLines = 150

// row is a line of the table: [name](dir), its command, and what it shows.
var row = regexp.MustCompile("(?m)^\\| \\[(\\w+)\\]\\((\\w+)\\)[^|]*\\| `([^`]+)` \\| .+ \\|$")

func table(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := row.FindAllStringSubmatch(string(text), -1)
	if lines := strings.Count(string(text), "\n| "); len(rows) != lines-1 {
		t.Fatalf("%d rows of the table are understood, of %d", len(rows), lines-1)
	}
	return rows
}

func TestTableHasEveryShortExample(t *testing.T) {
	t.Parallel()
	var listed []string
	for _, row := range table(t) {
		if row[1] != row[2] {
			t.Errorf("%s links to %s", row[1], row[2])
		}
		listed = append(listed, row[1])
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if !entry.IsDir() || name == "internal" {
			continue
		}
		if !slices.Contains(listed, name) {
			t.Errorf("%s is not in the table of README.md", name)
		}
		if lines := linesOf(t, name); lines >= maxLines && !slices.Contains(longer, name) {
			t.Errorf("%s has %d lines, not fewer than %d", name, lines, maxLines)
		}
	}
}

// linesOf counts the lines of an example without its tests.
func linesOf(t *testing.T, dir string) (lines int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		lines += strings.Count(string(text), "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestCommandsOfTheTableRun runs them in the root of the repository. The programs' own tests check their output.
func TestCommandsOfTheTableRun(t *testing.T) {
	t.Parallel()
	if os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("builds each program: set LUATX_VERIFY")
	}
	watchTree(t)
	for _, row := range table(t) {
		t.Run(strings.ReplaceAll(row[3], "/", "_"), func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(row[3])
			if words[0] != "go" {
				t.Fatalf("the command is %q, not one of go", row[3])
			}
			if row[1] == "cluster" {
				redistest.Need(t)
			}
			cmd := exec.CommandContext(t.Context(), "go", words[1:]...)
			cmd.Dir = ".."
			out, err := cmd.CombinedOutput()
			if err != nil || len(out) == 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// watchTree opens every directory of the tree, so that the go command does not reuse an earlier test result. It cannot see
// the files on which the commands depend.
func watchTree(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("..", func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == ".git" {
			return fs.SkipDir
		}
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
