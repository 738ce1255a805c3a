package commit

import (
	"os"
	"regexp"
	"testing"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

// TestCompiledTextsAreAsReviewed compares scripts that together use each part of the generator with files of testdata.
func TestCompiledTextsAreAsReviewed(t *testing.T) {
	t.Parallel()
	whole := shape{ack: AckFused, events: 2, steps: []step{
		{"HSET", lua.HashFields, 4},
		{"HINCRBY", lua.HashFields, 2},
		{"SET", lua.ReplacedString, 1},
		{"INCR", lua.ChangedString, 0},
		{"HGET", lua.NoUndo, 1},
		{"APPEND", lua.ReplacedString, 1},
	}}
	moving := shape{positioned: true, ack: AckFence, events: 1, delay: 60_000, steps: []step{{"SET", lua.ReplacedString, 1}, {"INCR", lua.ChangedString, 0}}}
	reading := shape{steps: []step{{"GET", lua.NoUndo, 0}}}
	fenced := shape{positioned: true, ack: AckFence}
	for name, got := range map[string]string{
		"alone": whole.compile(false), "batch": whole.compile(true), "positions": moving.compile(true), "position": shape{positioned: true}.compile(false),
		"reads": reading.compile(true), "fenced": fenced.compile(false),
	} {
		got = withoutRollback(got)
		file := "testdata/compiled_" + name + ".lua"
		if os.Getenv("LUATX_UPDATE") != "" {
			redistest.Must(t, os.WriteFile(file, []byte(got), 0o600))
		}
		want, err := os.ReadFile(file)
		redistest.Must(t, err)
		if got != string(want) {
			t.Errorf("%s differs: LUATX_UPDATE=1 go test ./internal/commit -run TestCompiledTexts, and review the difference", file)
		}
	}
}

func TestCountersAreReadExactlyByTheCommandOfTheirType(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"INCR": "GET", "INCRBY": "GET", "INCRBYFLOAT": "GET", "DECR": "GET", "DECRBY": "GET", "HINCRBY": "HGET", "HINCRBYFLOAT": "HGET", "HSET": "", "SET": "", "GET": "",
	} {
		assert.Equal(t, exactRead(name), want, "what reads the result of %s", name)
		assert.Equal(t, isCounter(name), want == "GET" && name != "INCRBYFLOAT", "%s adds to an integer", name)
	}
}

// rollback matches the fragment _rollback.lua in a script.
var rollback = regexp.MustCompile(`(?s)( +)-- Purpose: undoes what .*? forget\(\)\n +return left\n +end\n`)

// withoutRollback replaces the fragment by its name.
func withoutRollback(script string) string {
	return rollback.ReplaceAllString(script, "$1-- _rollback.lua\n")
}
