package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	boundaryTests = regexp.MustCompile("`([\\w./]+)`:((?:,? (?:Test|Fuzz)\\w+)+)")
	testName      = regexp.MustCompile(`(?:Test|Fuzz)\w+`)
)

// namedTests returns the tests that the tables of a page name, as "package test".
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
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := namedTests(string(page))
	if names := len(testName.FindAll(page, -1)); len(named) != names {
		t.Errorf("the page names %d tests, but only %d of them after a package in backquotes", names, len(named))
	}
	for _, test := range named {
		pkg, name, _ := strings.Cut(test, " ")
		files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !declared(t, files, name) {
			t.Errorf("docs/threat-model.md names %s, which is no test of %s", name, pkg)
		}
	}
}

func declared(t *testing.T, files []string, name string) bool {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), fmt.Sprintf("\nfunc %s(", name)) {
			return true
		}
	}
	return false
}

func TestNamedTestsAreThoseOfTables(t *testing.T) {
	t.Parallel()
	const page = "Text `a`: TestNo\n| x | y | `.`: TestA, FuzzB; `c/d`: TestE |\n| x | y | `f` |\n"
	if got := fmt.Sprint(namedTests(page)); got != "[. TestA . FuzzB c/d TestE]" {
		t.Error(got)
	}
}
