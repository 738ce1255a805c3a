package lua_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua/parse"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/assert"
)

// given are the names that Redis and Lua define for every script.
var given = strings.Fields(`KEYS ARGV redis cjson cmsgpack struct string table math
	error getmetatable ipairs pairs pcall setmetatable tonumber tostring type unpack`)

// constants are the names that a Transactor replaces.
var constants = map[string]string{
	"IDENTITY": "'i'", "RETENTION": "1", "PARKED_CAPACITY": "1", "PARKED_BYTES": "1", "LANE_CAPACITY": "1", "CAPACITY": "1", "ROOM": "1",
	"OUTBOX_BYTES": "1", "UNDO_BYTES": "1", "KEPT_BYTES": "1", "GUARD_BYTES": "1", "KEPT_COUNT": "1", "DURABLE": "true", "BUDGET": "1",
	"COMMANDS": "''",
}

// file is a script or a fragment with its directives.
type file struct {
	*names
	needs, defines []string
	lazies         map[string]lazy
}

// lazy is a function that defines fragments on demand.
type lazy struct{ defines, fragments []string }

func readFiles(t *testing.T) map[string]file {
	t.Helper()
	paths, err := filepath.Glob("*.lua")
	if err != nil || len(paths) < 60 {
		t.Fatalf("%d scripts, %v", len(paths), err)
	}
	all := map[string]file{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		assert.Must(t, err)
		f := file{names: namesOf(t, path, string(text)), lazies: map[string]lazy{}}
		for line := range strings.Lines(string(text)) {
			directive, ok := strings.CutPrefix(line, "--#")
			if !ok {
				continue
			}
			kind, value, _ := strings.Cut(strings.TrimSpace(directive), " ")
			switch kind {
			case "needs":
				f.needs = append(f.needs, strings.Fields(value)...)
			case "defines":
				f.defines = append(f.defines, strings.Fields(value)...)
			case "lazy":
				name, rest, _ := strings.Cut(value, "(")
				defines, fragments, _ := strings.Cut(rest, ")")
				f.lazies[name] = lazy{strings.Fields(defines), strings.Fields(fragments)}
			default:
				t.Errorf("%s: directive %q is unknown", path, kind)
			}
		}
		all[strings.TrimSuffix(path, ".lua")] = f
	}
	return all
}

// closure returns the fragments that a file needs, directly or through other fragments.
func closure(all map[string]file, name string, seen map[string]bool) map[string]bool {
	for _, need := range all[name].needs {
		if !strings.HasSuffix(need, "()") && !seen[need] {
			seen[need] = true
			closure(all, need, seen)
		}
	}
	return seen
}

func TestFilesUseDeclaredNamesOnly(t *testing.T) {
	t.Parallel()
	all := readFiles(t)
	for name, f := range all {
		known := map[string]bool{}
		for _, word := range given {
			known[word] = true
		}
		for _, need := range f.needs {
			known[strings.TrimSuffix(need, "()")] = true
		}
		for word := range f.lazies {
			known[word] = true
		}
		for fragment := range closure(all, name, map[string]bool{}) {
			if _, exists := all[fragment]; !exists {
				t.Errorf("%s needs %s, which does not exist", name, fragment)
			}
			for _, word := range all[fragment].defines {
				known[word] = true
			}
		}
		for word := range f.free {
			if !known[word] && !strings.HasPrefix(word, "_") { // names with a sigil: TestScriptsReplaceEverySigil
				t.Errorf("%s.lua uses %s, which no fragment that it needs defines", name, word)
			}
		}
		for _, word := range f.defines {
			if !f.defined[word] {
				t.Errorf("%s.lua says that it defines %s, and does not", name, word)
			}
		}
	}
}

func TestLazyFragmentsFindWhatTheyNeed(t *testing.T) {
	t.Parallel()
	all := readFiles(t)
	count := 0
	for name, f := range all {
		for function, l := range f.lazies {
			count++
			there := closure(all, name, map[string]bool{})
			for _, fragment := range l.fragments {
				for need := range closure(all, fragment, map[string]bool{}) {
					if !there[need] {
						t.Errorf("%s.lua: %s() has %s before %s, which it needs", name, function, fragment, need)
					}
				}
				there[fragment] = true
			}
			for _, word := range l.defines {
				if !slices.ContainsFunc(l.fragments, func(fragment string) bool { return slices.Contains(all[fragment].defines, word) }) {
					t.Errorf("%s.lua: %s() returns %s, which no fragment of it defines", name, function, word)
				}
			}
		}
	}
	if count == 0 {
		t.Error("no script has a lazy function")
	}
}

func TestScriptsReplaceEverySigil(t *testing.T) {
	t.Parallel()
	all := readFiles(t)
	for name := range all {
		if strings.HasPrefix(name, "_") {
			continue
		}
		text := lua.Script(name, constants)
		assert.NoError(t, assert.ErrOf(parse.Parse(strings.NewReader(text), name)), "%s does not parse", name)
		if lua.Keys(name) == nil && name != "read" {
			t.Errorf("%s has no keys in layout.go", name)
		}
	}
	if text := lua.Script("commit", nil); !strings.Contains(text, "@IDENTITY") {
		t.Error("a constant without a value is replaced")
	}
	for _, script := range slices.Sorted(maps.Keys(all)) {
		if keys := lua.Keys(script); len(keys) > 0 && len(slices.Compact(slices.Sorted(slices.Values(keys)))) != len(keys) {
			t.Errorf("%s declares a key twice: %v", script, keys)
		}
	}
}

func TestScriptRejectsUnknownName(t *testing.T) {
	t.Parallel()
	if text := lua.Script("nowhere", nil); !strings.Contains(text, "no script nowhere") {
		t.Errorf("the text is %q", text)
	}
}
