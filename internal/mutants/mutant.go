package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A mutant is one edit of one file.
type mutant struct {
	file       string // path from the module's root, with slashes
	op         string // what the edit does
	text       string // the file before the edit
	start, end int    // the bytes of text that are replaced
	with       string
	packages   []string // whose tests should notice the edit, the nearest first
	tests      []rung   // the tests that must notice the edit; nil: those of the packages
}

func (m mutant) edited() string { return m.text[:m.start] + m.with + m.text[m.end:] }

func (m mutant) line() int { return 1 + strings.Count(m.text[:m.start], "\n") }

// lines returns the lines that the edit touches, before and after.
func (m mutant) lines() (before, after string) {
	from := strings.LastIndexByte(m.text[:m.start], '\n') + 1
	to := len(m.text)
	if n := strings.IndexByte(m.text[m.end:], '\n'); n >= 0 {
		to = m.end + n
	}
	return m.text[from:to], m.text[from:m.start] + m.with + m.text[m.end:to]
}

// key identifies a mutant in equivalent.txt. It survives edits elsewhere in the file.
func (m mutant) key() string {
	before, after := m.lines()
	return m.file + "\n- " + strings.TrimSpace(before) + "\n+ " + strings.TrimSpace(after)
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s", m.file, m.line(), m.op)
}

// diff returns the edit in the form of equivalent.txt.
func (m mutant) diff() string { return fmt.Sprintf("%s (line %d, %s)", m.key(), m.line(), m.op) }

// A room is a directory whose code is mutated.
type room struct {
	dir   string
	files []string // prefixes of file names; nil: all files
	tests []string // packages whose tests should notice an edit, the nearest first
}

func (r room) begins() []string {
	if r.files == nil {
		return []string{""}
	}
	return r.files
}

// goRooms are the packages whose guarantees the tests must protect.
var goRooms = []room{
	{".", nil, []string{".", "./test/commit", "./test/undo", "./test/faults", "./test/cluster", "./stack", "./inbox", "./outbox", "./admin"}},
	{"internal/eval", nil, []string{"./internal/eval", "./internal/commit", "./test/commit", "./test/faults", "./test/cluster", "./relay"}},
	{"internal/commit", nil, []string{"./internal/commit", "./test/commit", "./test/undo", "./test/faults", "./test/cluster", "./inbox", "./outbox"}},
	{"internal/shard", nil, []string{"./internal/shard", "./internal/commit", "./outbox", "./relay", "./expiry", "./inbox", "./admin", "./repair", "./test/commit", "./test/cluster"}},
	{"internal/link", nil, []string{"./internal/link", "./relay", "./outbox", "./inbox", "./admin", "./test/commit", "./stream"}},
	{"internal/settle", nil, []string{"./internal/settle", "./relay", "./sqltx"}},
	{"outbox", nil, []string{"./outbox", "./relay", "./admin", "./admin/httpapi", "./admin/console", "./repair", "./test/faults"}},
	{"relay", nil, []string{"./relay", "./stack", "./service", "./test/faults", "./test/cluster", "./admin"}},
	{"inbox", nil, []string{"./inbox", "./test/commit", "./stack", "./stream", "./test/position"}},
	{"pipeline", nil, []string{"./pipeline", "./stack", "./admin"}},
	{"internal/group", nil, []string{"./internal/group", "./stream", "./trigger", "./admin", "./test/commit"}},
	{"stream", nil, []string{"./stream", "./stack", "./admin", "./relay", "./trigger", "./test/commit", "./test/position", "./test/faults"}},
	{"repair", nil, []string{"./repair", "./admin", "./outbox", "./inbox"}},
	{"expiry", nil, []string{"./expiry", "./admin", "./test/faults", "./test/cluster"}},
	{"sqltx", nil, []string{"./sqltx", "./sqltx/sqltest"}},
	{"trigger", nil, []string{"./trigger", "./admin", "./test/faults"}},
	{"admin", []string{"rights"}, []string{"./admin"}},
	{"admin/internal/guard", nil, []string{"./admin/httpapi", "./admin/console"}},
	{"admin/httpapi", []string{"httpapi", "identity", "destinations"}, []string{"./admin/httpapi"}},
	{"admin/console", []string{"preview"}, []string{"./admin/console"}},
	{"idempotency", nil, []string{"./idempotency", "./examples/payment"}},
}

// luaRooms assigns scripts to the packages that run them, by prefixes of their names. The first match counts.
var luaRooms = []struct {
	names []string
	tests []string
}{
	{[]string{"_repair", "repair", "turn"}, []string{"./repair"}},
	{[]string{"sweep"}, []string{"./relay"}},
	{[]string{"drop"}, []string{"./internal/rekey"}},
	{[]string{"process"}, []string{"./internal/process", "./admin"}},
	{[]string{"history"}, []string{"./internal/history", "./admin"}},
	{[]string{"rights"}, []string{"./admin", "./test/commit"}},
	{[]string{"_position", "reposition", "generation"}, []string{"./inbox", "./stream", "./test/position", "./test/commit"}},
	{[]string{"_timers", "timer", "decide", "due", "revoke"}, []string{"./expiry"}},
	{[]string{"release"}, []string{"./pipeline", "./stack"}},
	{[]string{"takeover", "_taken", "partition", "deadletter"}, []string{"./stream", "./trigger", "./admin", "./test/commit"}},
	{
		[]string{"members", "lease", "acknowledge", "trim", "dead", "deadimport", "dismiss", "fetch", "hold", "putback", "window"},
		[]string{"./stream", "./trigger", "./admin", "./relay"},
	},
	{[]string{"_body", "_lanes", "_lease", "_outbox", "_park", "_errors", "_audit", "_owned", "claim", "settle", "extend", "change", "rearm", "replay", "discard", "erase", "unhold", "import", "list", "pause", "resume", "scheduled"}, []string{"./outbox", "./relay", "./admin"}},
	{[]string{"forget"}, []string{"./admin", "./test/commit"}},
	{[]string{"_crowded"}, []string{"./internal/commit", "./test/commit"}},
	{[]string{"_undo", "_rollback"}, []string{"./test/undo", "./internal/commit", "./test/commit"}},
	{[]string{""}, []string{"./test/commit", "./internal/commit", "./test/undo", "./test/cluster", "./test/faults", "./inbox", "./outbox", "./stack"}},
}

func rooms() []string {
	names := []string{"internal/lua"}
	for _, r := range goRooms {
		names = append(names, r.dir)
	}
	return names
}

// generate returns every mutant of the files whose path begins with only. "go" selects all files except Lua.
func generate(root, only string) ([]mutant, error) {
	var all []mutant
	add := func(pattern string, mutate func(file, text string) ([]mutant, error)) error {
		files, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil {
			return err
		}
		for _, file := range files {
			if !strings.HasPrefix(file, only) || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "_gen.go") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
			if err != nil {
				return err
			}
			found, err := mutate(file, string(text))
			if err != nil {
				return err
			}
			tests, err := packages(root, file)
			if err != nil {
				return err
			}
			for _, m := range found {
				m.packages = tests
				all = append(all, m)
			}
		}
		return nil
	}
	if only == "go" {
		only = ""
	} else if err := add("internal/lua/*.lua", luaMutants); err != nil {
		return nil, err
	}
	for _, r := range goRooms {
		for _, begin := range r.begins() {
			if err := add(path.Join(r.dir, begin+"*.go"), goMutants); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// packages returns the packages whose tests should notice an edit of a file, the nearest first.
func packages(root, file string) ([]string, error) {
	dir, name := path.Split(file)
	if dir == "internal/lua/" {
		return luaPackages(filepath.Join(root, filepath.FromSlash(dir)), strings.TrimSuffix(name, ".lua"))
	}
	for _, r := range goRooms {
		if r.dir == path.Clean(dir) {
			return r.tests, nil
		}
	}
	return nil, fmt.Errorf("%s: no tests are named for it", file)
}

// luaPackages returns the packages of a script. Those of a fragment are followed by those of the scripts that it is part of.
func luaPackages(dir, name string) (tests []string, err error) {
	users := []string{name}
	for i := 0; i < len(users); i++ {
		for _, pkg := range luaRoom(users[i]) {
			if !slices.Contains(tests, pkg) {
				tests = append(tests, pkg)
			}
		}
		more, err := usersOf(dir, users[i])
		if err != nil {
			return nil, err
		}
		users = append(users, slices.DeleteFunc(more, func(user string) bool { return slices.Contains(users, user) })...)
	}
	return tests, nil
}

func luaRoom(name string) []string {
	for _, r := range luaRooms {
		if slices.ContainsFunc(r.names, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			return r.tests
		}
	}
	return nil
}

var parts = regexp.MustCompile(`(?m)^--#(?:needs|lazy) .*$`)

// usersOf returns the files whose head names a fragment.
func usersOf(dir, fragment string) (users []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.lua"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, line := range parts.FindAllString(string(text), -1) {
			if slices.Contains(strings.Fields(line), fragment) {
				users = append(users, strings.TrimSuffix(filepath.Base(file), ".lua"))
				break
			}
		}
	}
	return users, err
}
