package rules

import (
	"fmt"
	"path"
	"strings"
	"testing"
)

// scriptLabels begin the lines that a script's header must have: keys, arguments, reply, how much it does at most, and
// the oldest server it runs on.
var scriptLabels = []string{"KEYS", "ARGV", "Reply", "Bound", "Redis"}

// headerProblems says what the opening comment of a script lacks. A fragment, whose name begins with an underscore, has
// no keys and no reply of its own: its purpose is enough.
func headerProblems(name, source string) []string {
	var header []string
	for line := range strings.Lines(source) {
		comment, ok := strings.CutPrefix(line, "--")
		if !ok {
			break
		}
		header = append(header, strings.TrimSpace(comment))
	}

	var problems []string
	if len(header) == 0 || header[0] == "" || labelOf(header[0]) != "" {
		problems = append(problems, name+": the first line is not a comment that says what the script is for")
	}
	if strings.HasPrefix(path.Base(name), "_") {
		return problems
	}
	said := map[string]bool{}
	for _, line := range header {
		if label := labelOf(line); strings.Trim(line[len(label):], " :") != "" {
			said[label] = true
		}
	}
	for _, label := range scriptLabels {
		if !said[label] {
			problems = append(problems, fmt.Sprintf("%s: the header has no line \"-- %s …\"", name, label))
		}
	}
	return problems
}

// labelOf is the label that a header line begins with, or nothing.
func labelOf(line string) string {
	for _, label := range scriptLabels {
		rest, ok := strings.CutPrefix(line, label)
		if ok && (rest == "" || strings.ContainsAny(rest[:1], " :[")) {
			return label
		}
	}
	return ""
}

func TestHeaderProblems(t *testing.T) {
	t.Parallel()
	const whole = "-- Moves a thing.\n--\n-- KEYS: thing\n-- ARGV  none\n-- Reply: OK\n-- Bound: one\n-- Redis: 6.0\nreturn 1\n"
	tests := []struct {
		name, file, source, want string
	}{
		{"whole", "internal/lua/move.lua", whole, ""},
		{"indexed keys", "internal/lua/move.lua", strings.Replace(whole, "KEYS: thing", "KEYS[1] thing", 1), ""},
		{"no purpose", "internal/lua/move.lua", strings.Replace(whole, "-- Moves a thing.\n--\n", "", 1), "what the script is for"},
		{"no bound", "internal/lua/move.lua", strings.Replace(whole, "-- Bound: one\n", "", 1), "-- Bound"},
		{"empty bound", "internal/lua/move.lua", strings.Replace(whole, "Bound: one", "Bound:", 1), "-- Bound"},
		{"another word", "internal/lua/move.lua", strings.Replace(whole, "Reply: OK", "Replying OK", 1), "-- Reply"},
		{"after the header", "internal/lua/move.lua", strings.Replace(whole, "-- Redis: 6.0\nreturn 1\n", "return 1\n-- Redis: 6.0\n", 1), "-- Redis"},
		{"fragment", "internal/lua/_digest.lua", "-- Digests a value.\nlocal x\n", ""},
		{"fragment without purpose", "internal/lua/_digest.lua", "local x\n", "what the script is for"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			wantProblem(t, headerProblems(test.file, test.source), test.want)
		})
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
