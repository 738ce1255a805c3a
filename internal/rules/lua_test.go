package rules

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/docs"
)

// headerProblems returns what the header of a script lacks for docs/keys.md: its purpose, keys, arguments, reply, the most
// work that it does, and the oldest server that it runs on. A fragment, whose name begins with an underscore, has no keys and
// no reply of its own, so it needs only a purpose.
func headerProblems(name, source string) []string {
	base := strings.TrimSuffix(path.Base(name), ".lua")
	header := docs.Header(base, source)
	said := map[string]string{"Purpose": header.Purpose}
	for line := range strings.Lines(header.Layout) {
		label, text, _ := strings.Cut(line, ":")
		said[label] = strings.TrimSpace(text)
	}
	labels := []string{"Purpose", "KEYS", "ARGV", "Reply", "Bound", "Redis"}
	if strings.HasPrefix(base, "_") {
		labels = labels[:1]
	}
	var problems []string
	for _, label := range labels {
		if said[label] == "" {
			problems = append(problems, fmt.Sprintf("%s: the header has no line \"-- %s: …\"", name, label))
		}
	}
	return problems
}

func TestHeaderProblemsAreFound(t *testing.T) {
	t.Parallel()
	const whole = "-- Purpose: moves a thing.\n--\n-- KEYS: thing\n-- ARGV:  none\n-- Reply: OK\n-- Bound: one\n-- Redis: 6.0\nreturn 1\n"
	for _, test := range []struct{ file, old, edited, want string }{
		{"move.lua", "", "", ""},
		{"move.lua", "-- Purpose: moves a thing.\n--\n", "", "-- Purpose"},
		{"move.lua", "-- Bound: one\n", "", "-- Bound"},
		{"move.lua", "Bound: one", "Bound:", "-- Bound"},
		{"move.lua", "Reply: OK", "Replying OK", "-- Reply"},
		{"move.lua", "-- Redis: 6.0\nreturn 1\n", "return 1\n-- Redis: 6.0\n", "-- Redis"},
		{"_digest.lua", whole, "-- Purpose: digests a value.\nlocal x\n", ""},
		{"_digest.lua", whole, "local x\n", "-- Purpose"},
	} {
		source := strings.Replace(whole, test.old, test.edited, 1)
		wantProblem(t, headerProblems("internal/lua/"+test.file, source), test.want)
	}
}

func TestScriptsBeginWithAHeader(t *testing.T) {
	t.Parallel()
	for _, name := range trackedFiles(t, ".lua") {
		if strings.HasPrefix(name, "internal/lua/") {
			report(t, headerProblems(name, read(t, name)))
		}
	}
}

func TestScriptsThatRunAtMaxmemoryBeginWithAWriteThatNeedsNone(t *testing.T) {
	t.Parallel()
	const call = "write_though_full()"
	for _, name := range trackedFiles(t, ".lua") {
		source := read(t, name)
		promised := strings.Contains(source, "\n-- Memory:  runs at maxmemory, see _full.lua\n")
		if path.Base(name) != "_full.lua" && promised != strings.Contains(source, call) {
			t.Errorf("%s: its header says that it runs at maxmemory: %t; it calls %s: %t", name, promised, call, !promised)
		}
	}
}
