// Package peers contains the service of the README as its users would write it with other libraries.
package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/docs"
)

// TestComparisonCountsTheLinesOfThePrograms compares the row of docs/comparison.md with the programs.
func TestComparisonCountsTheLinesOfThePrograms(t *testing.T) {
	t.Parallel()
	row := "| lines |"
	for _, block := range docs.Parse(read(t, "../../README.md")).Blocks {
		if strings.HasPrefix(block.Text, "package main\n") {
			row += fmt.Sprintf(" %d |", docs.CodeLines(block.Text))
			break
		}
	}
	for _, peer := range []string{"asynq", "river", "watermill"} {
		source := read(t, filepath.Join(peer, "main.go"))
		_, program, _ := strings.Cut(source, "package main\n")
		row += fmt.Sprintf(" %d |", docs.CodeLines("package main\n"+program))
	}
	if !strings.Contains(read(t, "../../docs/comparison.md"), "\n"+row+"\n") {
		t.Errorf("docs/comparison.md lacks the row %q", row)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
