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
	boundaryTests = regexp.MustCompile("`([\\w./]+)`:((?:,? (?:Test|Fuzz)\\w+)+)")
	testName      = regexp.MustCompile(`(?:Test|Fuzz)\w+`)
	testFunc      = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// namedTests returns the tests in the tables of a page, as "package test".
func namedTests(page string) []string {
	var all []string
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, m := range boundaryTests.FindAllStringSubmatch(line, -1) {
			for _, name := range testName.FindAllString(m[2], -1) {
				all = append(all, m[1]+" "+name)
			}
		}
	}
	return all
}

func TestThreatModelNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/threat-model.md")
	named := namedTests(page)
	if names := len(testName.FindAllString(page, -1)); len(named) != names {
		t.Errorf("the page names %d tests, but only %d of them after a package in backquotes", names, len(named))
	}
	declared := map[string]bool{}
	for _, file := range trackedFiles(t, "_test.go") {
		for _, m := range testFunc.FindAllStringSubmatch(read(t, file), -1) {
			declared[path.Dir(file)+" "+m[1]] = true
		}
	}
	for _, test := range named {
		if !declared[test] {
			t.Errorf("docs/threat-model.md names %s, which is no test", test)
		}
	}
}

func TestTestNamesAreReadFromTables(t *testing.T) {
	t.Parallel()
	const page = "Text `a`: TestNo\n| x | y | `.`: TestA, FuzzB; `c/d`: TestE |\n| x | y | `f` |\n"
	assert.Equal(t, fmt.Sprint(namedTests(page)), "[. TestA . FuzzB c/d TestE]", "the tests")
}
