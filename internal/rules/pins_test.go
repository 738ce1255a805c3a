package rules

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

var (
	uses        = regexp.MustCompile(`^\s*(?:- )?uses:\s*(.+)$`)
	image       = regexp.MustCompile(`^\s*(?:image:|FROM)\s+(.+)$`)
	pinnedUse   = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	pinnedImage = regexp.MustCompile(`^[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}( AS \w+)?$`)
)

// pinProblems returns the actions and images of a file that only a tag identifies. The owner of a tag can move it to
// other code.
func pinProblems(name, text string) []string {
	var problems []string
	for i, line := range strings.Split(text, "\n") {
		if m := uses.FindStringSubmatch(line); m != nil && !strings.HasPrefix(m[1], "./") && !pinnedUse.MatchString(m[1]) {
			problems = append(problems, fmt.Sprintf("%s:%d: %s: pin the action to a commit, with its version as a comment", name, i+1, m[1]))
		}
		if m := image.FindStringSubmatch(line); m != nil && !pinnedImage.MatchString(m[1]) {
			problems = append(problems, fmt.Sprintf("%s:%d: %s: pin the image to a digest", name, i+1, m[1]))
		}
	}
	return problems
}

func TestActionsAndImagesArePinned(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".github/workflows", "deploy"} {
		looked := 0
		for _, name := range trackedFiles(t, "") {
			if path.Dir(name) == dir {
				looked++
				report(t, pinProblems(name, read(t, name)))
			}
		}
		if looked == 0 {
			t.Errorf("%s has no files", dir)
		}
	}
}

func TestTagsWithoutDigestsAreNotPins(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"      - uses: actions/checkout@v5":                                       1,
		"        uses: actions/checkout@" + strings.Repeat("a", 40):               1,
		"      - uses: actions/checkout@" + strings.Repeat("a", 40) + " # v5.0.0": 0,
		"      - uses: ./local":                                                   0,
		"    image: redis:8":                                                      1,
		"    image: redis@sha256:" + strings.Repeat("a", 64):                      1,
		"FROM golang:1.26 AS build":                                               1,
		"FROM golang:1.26@sha256:" + strings.Repeat("a", 64) + " AS build":        0,
	} {
		assert.Equal(t, len(pinProblems("f", text)), want, "problems of %s", text)
	}
}
