package rules

import (
	"slices"
	"strings"
	"testing"
)

// dockerPattern returns a line of .gitignore as .dockerignore has it: from the root of the context, and without slashes at its ends.
func dockerPattern(line string) string {
	if !strings.Contains(line, "/") {
		line = "**/" + line
	}
	return strings.Trim(line, "/")
}

func TestImageIsBuiltWithoutTheHistoryAndWhatGitIgnores(t *testing.T) {
	t.Parallel()
	left := strings.Fields(read(t, ".dockerignore"))
	for _, line := range append(strings.Fields(read(t, ".gitignore")), "/.git") {
		if pattern := dockerPattern(line); !slices.Contains(left, pattern) {
			t.Errorf(".dockerignore does not contain %s", pattern)
		}
	}
}
