package undo_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

func TestFailedRandomTransactionsLeaveNothing(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t).Client(t)
	lists := undoLists(t, client)
	hundreds := 10 // rapid runs a hundred at a time
	if os.Getenv("LUATX_VERIFY") != "" {
		hundreds = 20
	}
	for i := range hundreds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			m := newMatrix(t, client)
			r := undoRandom{m: m, lists: lists, later: strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)}
			rapid.Check(t, r.check)
		})
	}
}

// undoLists returns the argument lists of the differential test for the writing commands of the server, and some others.
func undoLists(t *testing.T, client redis.UniversalClient) []string {
	t.Helper()
	has, err := client.Command(t.Context()).Result()
	redistest.Must(t, err)
	var lists []string
	for line := range strings.Lines(strings.TrimSpace(rig.CommandRows)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ": ")
		first, _, _ := strings.Cut(name, " ")
		for list := range strings.SplitSeq(rest, " | ") {
			args, _, _ := strings.Cut(list, " => ")
			if has[strings.ToLower(first)] != nil && !strings.Contains(args, "$dump") {
				lists = append(lists, name+" "+args)
			}
		}
	}
	if len(lists) < 200 {
		t.Fatalf("%d lists of arguments are too few", len(lists))
	}
	return lists
}

type undoRandom struct {
	m     *matrix
	lists []string
	later string
	runs  int
}

// check creates random keys, fails a random transaction on them, and compares the data.
func (r *undoRandom) check(rt *rapid.T) {
	r.runs++
	k := func(name string) string { return rig.Key(r.m.t, r.m.tr, "a", strconv.Itoa(r.runs), name) }
	f := rapid.SampledFrom(failures).Draw(rt, "failure")
	commands := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) []string { return r.command(rt) }), 1, 12).Draw(rt, "commands")
	place := rapid.IntRange(0, len(commands)).Draw(rt, "place")

	made := map[string]bool{}
	for _, words := range commands {
		for i, word := range words {
			if name, ok := strings.CutPrefix(word, "$"); ok {
				words[i] = k(name)
				if !made[name] {
					made[name] = true
					r.setUp(name, k(name))
				}
			}
		}
	}
	for line := range strings.SplitSeq(f.setup, ";") {
		if line != "" {
			r.do(rig.Words(line, k("k"))...)
		}
	}
	pattern := r.m.tr.Config().Namespace + "*"
	before, err := redistest.Dump(r.m.t.Context(), r.m.client, pattern)
	if err != nil {
		rt.Fatal(err)
	}
	err = r.transact(commands, f.command, place, k("k"))
	if _, failed := errors.AsType[*luatx.CommandError](err); !failed {
		rt.Fatalf("error %v", err)
	}
	after, dumpErr := redistest.Dump(r.m.t.Context(), r.m.client, pattern)
	if dumpErr != nil {
		rt.Fatal(dumpErr)
	}
	if diff := redistest.Diff(before, after); diff != "" {
		rt.Errorf("%q, %s at %d, after %v:\n%s", commands, f.command, place, err, diff)
	}
	for name := range after.Keys {
		if !slices.Contains([]string{"inbox:a", "entries", "pending"}, name[strings.Index(name, "}:")+2:]) {
			r.do("DEL", name)
		}
	}
}

// command returns a random valid command. A word that begins with $ is the name of a key.
func (r *undoRandom) command(rt *rapid.T) []string {
	names := slices.Sorted(maps.Keys(rig.CommandKeys))
	for {
		var words []string
		for word := range strings.FieldsSeq(rapid.SampledFrom(r.lists).Draw(rt, "list")) {
			token, isToken := strings.CutPrefix(word, "$")
			token = strings.TrimSuffix(token, "!")
			_, isKey := rig.CommandKeys[token]
			switch {
			case token == "any" && isToken, isKey && isToken && rapid.IntRange(0, 5).Draw(rt, "another key") == 0:
				word = "$" + rapid.SampledFrom(names).Draw(rt, "key")
			case isToken && isKey:
				word = "$" + token
			case token == "at" && isToken:
				word = r.later[:10]
			case token == "atms" && isToken:
				word = r.later
			case isToken:
				word = rapid.SampledFrom(rig.CommandValues[token]).Draw(rt, token)
			}
			words = append(words, word)
		}
		args := rig.Anys(words)
		spec, err := command.Lookup(args)
		if err != nil || spec.Check(args) != nil {
			continue
		}
		if _, err := spec.Keys(args); err == nil {
			return words
		}
	}
}

func (r *undoRandom) setUp(name, k string) {
	for _, line := range rig.CommandKeys[name] {
		args := strings.Split(strings.ReplaceAll(line, "$later", r.later), " ")
		for i, word := range args {
			if word == "K" {
				args[i] = k
			}
		}
		r.do(rig.Anys(args)...)
	}
}

func (r *undoRandom) do(args ...any) {
	if err := r.m.client.Do(r.m.t.Context(), args...).Err(); err != nil && args[0] != "HPEXPIREAT" {
		r.m.t.Errorf("%q: %v", args, err)
	}
}

func (r *undoRandom) transact(commands [][]string, failing string, place int, k string) error {
	ctx := r.m.t.Context()
	return assert.ErrOf(r.m.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		if err := tx.Emit(luatx.Event{Body: []byte(`{"n":1}`)}); err != nil {
			return err
		}
		for i := range len(commands) + 1 {
			if i == place {
				record(ctx, tx, rig.Words(failing, k), k)
			}
			if i < len(commands) {
				record(ctx, tx, rig.Anys(commands[i]), k)
			}
		}
		return nil
	}, luatx.WithID(fmt.Sprint("random", r.runs))))
}
