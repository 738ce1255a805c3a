package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	edit := func(name, old, replacement, test string) Mutant {
		return Mutant{Name: name, File: "tiny.go", Old: old, New: replacement, Package: ".", Test: test, Why: "because"}
	}
	cases := []struct {
		mutant Mutant
		want   outcome
	}{
		{edit("wrong-branch", "a > b", "a < b", "^TestMax$"), killed},
		{edit("over-lines", "\t\treturn a\n\t}\n\treturn b", "\t\treturn b\n\t}\n\treturn b", "^TestMax$"), killed},
		{edit("panics", "return b", `panic("x")`, "^TestMax$"), killed},
		{edit("same-meaning", "a > b", "a >= b", "^TestMax$"), survived},
		{edit("weak-test", "a > b", "a < b", "^TestWeak$"), survived},
		{edit("not-there", "a == b", "a < b", "^TestMax$"), stale},
		{edit("there-twice", "return", "panic", "^TestMax$"), stale},
		{edit("no-change", "a > b", "a > b", "^TestMax$"), stale},
		{edit("nonsense", "a > b", "a > c", "^TestMax$"), doesNotBuild},
		{edit("nothing-matches", "a > b", "a < b", "^TestMin$"), noTest},
		{edit("always-skipped", "a > b", "a < b", "^TestSkipped$"), noTest},
		{edit("always-red", "a > b", "a < b", "^TestRed$"), redBefore},
	}
	var mutants []Mutant
	for _, c := range cases {
		mutants = append(mutants, c.mutant)
	}
	before := read(t, "testdata/tiny/tiny.go")
	results, err := runAll(t.Context(), settings{root: "testdata/tiny", jobs: 2, timeout: 30 * time.Second}, mutants)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		if got := results[i]; got.outcome != c.want || got.Name != c.mutant.Name {
			t.Errorf("%s: %s, want %s\n%s", c.mutant.Name, got.outcome, c.want, got.detail)
		}
	}
	if read(t, "testdata/tiny/tiny.go") != before {
		t.Error("the tree itself was edited")
	}

	var out bytes.Buffer
	if err := report(&out, results[:3], false); err != nil || strings.Count(out.String(), "killed") != 3 {
		t.Errorf("all killed: %v\n%s", err, out.String())
	}
	out.Reset()
	if err := report(&out, results[2:4], false); err == nil || !strings.Contains(out.String(), "why: because") {
		t.Errorf("one survived: %v\n%s", err, out.String())
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A stale line of the table is found by the ordinary tests, before anybody runs the mutants.
func TestTableIsFresh(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range table() {
		if names[m.Name] || m.Name == "" || m.Why == "" || m.Test == "" || m.Package == "" {
			t.Errorf("%q: the name must be unique and every field given", m.Name)
		}
		names[m.Name] = true
		text := read(t, filepath.Join("..", "..", filepath.FromSlash(m.File)))
		if n := strings.Count(text, m.Old); n != 1 || m.Old == m.New {
			t.Errorf("%s: its text occurs %d times in %s", m.Name, n, m.File)
		}
	}
}

func TestCommandListsAndRefuses(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := command(t.Context(), []string{"-list", "-run", "proxy-does-not-hold"}, &out); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%v\n%s", err, out.String())
	}
	for _, args := range [][]string{{"-run", "no such mutant"}, {"-run", "("}, {"-j"}} {
		if err := command(t.Context(), args, &out); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
