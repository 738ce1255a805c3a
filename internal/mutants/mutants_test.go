package main

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// after returns each edited text by the name of its operator.
func after(t *testing.T, mutate func(file, text string) ([]mutant, error), file, text string) map[string][]string {
	t.Helper()
	found, err := mutate(file, text)
	if err != nil {
		t.Fatal(err)
	}
	edits := map[string][]string{}
	for _, m := range found {
		_, line := m.lines()
		edits[m.op] = append(edits[m.op], strings.TrimSpace(line))
	}
	return edits
}

func TestGoOperatorsProduceTheirMutants(t *testing.T) {
	t.Parallel()
	edits := after(t, goMutants, "x.go", `package x

const pause = 5 * time.Second

func f(ctx context.Context, a, b int) error {
	defer g(a)
	if a < b && ready(a) {
		h(a, b)
		return fmt.Errorf("no %d", 3)
	}
	k(context.WithoutCancel(ctx), min(a, 7))
	return err
}
`)
	for op, want := range map[string]string{
		"swap <":             "if a <= b && ready(a) {",
		"swap &&":            "if a < b || ready(a) {",
		"negate a condition": "if !(a < b && ready(a)) {",
		"drop a defer":       "_ = a",
		"drop a call":        "_, _ = a, b",
		"swap two arguments": "h(b, a)",
		"drop WithoutCancel": "k(ctx, min(a, 7))",
		"drop a bound":       "k(context.WithoutCancel(ctx), a)",
		"shift a number":     "k(context.WithoutCancel(ctx), min(a, 8))",
		"drop an error":      "return nil",
		"replace a default":  "const pause = 0",
	} {
		if !slices.Contains(edits[op], want) {
			t.Errorf("%s makes %q, want %q", op, edits[op], want)
		}
	}
	if slices.Contains(edits["shift a number"], `return fmt.Errorf("no %d", 4)`) {
		t.Error("the wording of an error is mutated")
	}
}

func TestLuaOperatorsProduceTheirMutants(t *testing.T) {
	t.Parallel()
	edits := after(t, luaMutants, "x.lua", `-- a comment with 1 < 2
local function f(a, b)
  if a >= 2 and b then
    redis.call('ZADD', KEYS[1], 'GT', a, b)
  end
  return tonumber(a or 0)
end
`)
	for op, want := range map[string]string{
		"return early":         "local function f(a, b) do return end",
		"swap >=":              "if a > 2 and b then",
		"swap and":             "if a >= 2 or b then",
		"negate a condition":   "if not (a >= 2 and b) then",
		"shift a number":       "redis.call('ZADD', KEYS[2], 'GT', a, b)",
		"drop a call of Redis": "",
		"drop an argument":     "redis.call('ZADD', KEYS[1], a, b)",
		"swap two arguments":   "redis.call('ZADD', KEYS[1], 'GT', b, a)",
		"drop a default":       "return tonumber(a)",
	} {
		if !slices.Contains(edits[op], want) {
			t.Errorf("%s makes %q, want %q", op, edits[op], want)
		}
	}
	for op, lines := range edits {
		if slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "--") }) {
			t.Errorf("%s edits a comment", op)
		}
	}
}

func TestFitKeepsTheLengthOfAScript(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"return 1":                      "return 1  ",
		"--abcd\nx=10":                  "--bcd\nx=10",
		"--a\n--bcdef\nx=1":             "--\n--f\nx=1",
		"return 1234":                   "",
		"--\nlocal a = 1 -- and b\na=2": "",
	} {
		got, err := fit(script, 10)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q becomes %q, %v; want %q", script, got, err, want)
		}
	}
}

func TestReportScoresAndFails(t *testing.T) {
	t.Parallel()
	m := mutant{file: "a.go", op: "swap <", text: "x\nif a < b {\n", start: 7, end: 8, with: "<="}
	results := []result{{m, killed, "TestA", time.Second}, {m, survived, "", time.Second}}
	var out bytes.Buffer
	if err := report(&out, results, 0.5); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"- if a < b {", "+ if a <= b {", "1 of 2", "50 %"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	if err := report(&out, results, 0.99); err == nil {
		t.Error("half of the mutants suffice for a floor of 99 %")
	}
	if report(&out, nil, 0) == nil {
		t.Error("a sample of nothing passes")
	}
}

func TestEditsOfPromisesApply(t *testing.T) {
	t.Parallel()
	all, err := promises("../..")
	if err != nil || len(all) == 0 || len(all) > 40 {
		t.Fatalf("%d promises, at most 40 are allowed: %v", len(all), err)
	}
	for _, m := range all {
		if before, after := m.lines(); before == after {
			t.Errorf("%s changes nothing", m)
		}
		if rung := m.tests[0]; !declares(t, filepath.Join("../..", rung.pkg), rung.only) {
			t.Errorf("%s names the test %s, which %s does not have", m, rung.only, rung.pkg)
		}
	}
}

// declares reports whether a directory has a test that the first part of a -run pattern matches.
func declares(t *testing.T, dir, pattern string) bool {
	t.Helper()
	first, _, _ := strings.Cut(pattern, "/")
	name := regexp.MustCompile(first)
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			if first != "" && name.Match(test[1]) {
				return true
			}
		}
	}
	return false
}

func TestRunnerReportsTheMutantsThatTestsNotice(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata/tiny")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "tiny.go"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRunner(root, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	w, err := r.worker()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(old, with, test string) mutant {
		start := strings.Index(string(text), old)
		return mutant{file: "tiny.go", text: string(text), start: start, end: start + len(old), with: with, tests: []rung{{pkg: ".", only: test}}}
	}
	for _, c := range []struct {
		old, with, test string
		want            outcome
	}{
		{"a > b", "a < b", "^TestMax$", killed},
		{"return b", `panic("x")`, "^TestMax$", killed},
		{"a > b", "a >= b", "^TestMax$", survived},
		{"a > b", "a < b", "^TestWeak$", survived},
		{"a > b", "a > c", "^TestMax$", invalid},
		{"a > b", "a < b", "^TestRed$", ""},
		{"a > b", "a < b", "^TestMissing$", ""},
	} {
		got, by, err := w.try(t.Context(), edit(c.old, c.with, c.test))
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s for %s under %s: %q by %q, %v; want %q", c.with, c.old, c.test, got, by, err, c.want)
		}
	}

	m, edited, binary := edit("a > b", "a < b", ""), filepath.Join(w.dir, "edited.go"), filepath.Join(w.dir, "linked")
	if err := errors.Join(os.WriteFile(edited, []byte(m.edited()), 0o600), w.relink(t.Context(), m, ".", edited, binary)); err != nil {
		t.Error(err)
	}
	if red, by, err := w.run(t.Context(), rung{pkg: ".", only: "^TestMax$"}, binary); err != nil || !red || by != "TestMax" {
		t.Errorf("the edit without its importers: %t by %q, %v", red, by, err)
	}

	sample := []mutant{
		edit("a > b", "a > c", "^TestMax$"), edit("a > b", "a < b", "^TestMax$"), edit("a > b", "a >= b", "^TestMax$"),
		edit("return b", "return c", "^TestMax$"), edit("return b", `panic("x")`, "^TestMax$"), edit("return b", "return a", "^TestMax$"),
	}
	outcomes := map[string]outcome{}
	results, err := r.sample(t.Context(), sample, 3, 2, func(r result) { outcomes[r.with] = r.outcome })
	want := map[string]outcome{"a < b": killed, "a >= b": survived, `panic("x")`: killed}
	if err != nil || len(results) != 3 || r.tried != 5 || !maps.Equal(outcomes, want) {
		t.Errorf("a sample of three by two workers: %v, %v; want the first three that compile", outcomes, err)
	}
	sample[1] = edit("a > b", "a < b", "^TestRed$")
	if _, err := r.sample(t.Context(), sample, 3, 2, func(result) {}); err == nil {
		t.Error("a sample whose tests are red without an edit has a score")
	}
}

// If the generator no longer makes the edit of a block, the block has no effect, and nobody would notice without this test.
func TestEquivalentMutantsExist(t *testing.T) {
	t.Parallel()
	known, err := equivalents()
	if err != nil {
		t.Fatal(err)
	}
	all, err := generate("../..", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		delete(known, m.key())
		if _, err := os.Stat("../../" + m.file); errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	for key := range known {
		t.Errorf("equivalent.txt has a mutant that is not made:\n%s", key)
	}
	if len(all) < 10000 {
		t.Errorf("%d mutants", len(all))
	}
}
