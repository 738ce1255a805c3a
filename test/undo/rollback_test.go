package undo_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// emitting commits two events, and then commands.
func emitting(t *testing.T, tr *luatx.Transactor, k, lines string) error {
	t.Helper()
	return assert.ErrOf(tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
		err := errors.Join(rig.Emit(tx), rig.Emit(tx))
		for line := range strings.SplitSeq(lines, ";") {
			tx.Pipeline().Do(t.Context(), rig.Words(line, k)...)
		}
		return err
	}, luatx.WithID(redistest.Tag(t))))
}

func TestRollbackNamesEachEventThatItCannotRemove(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	tr := rig.NewTransactor(t, client)
	home, k := link.Of(tr).Scripts.Shard(slot.OfTag("a")), rig.Key(t, tr, "a", "k")
	rig.Run(t, admin, k, "SET K:text v")
	rig.Grant(t, admin, "-zrem") // after the check
	err := emitting(t, tr, k, "SET K v;LPUSH K:text x")
	failed := "ZREM " + home.Key("pending") + ": "
	broken, ok := errors.AsType[*luatx.RollbackError](err)
	if !ok || strings.Count(broken.Text, failed) != 2 || !strings.Contains(broken.Text, "; "+failed) {
		t.Errorf("error %v, want %s twice", err, failed)
	}
	assert.Equal(t, admin.HLen(t.Context(), home.Key("entries")).Val(), 0, "events with a body")
}

func TestEventsThatDoNotBecomePendingAreUndone(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
		k, home := rig.Key(t, tr, "a", "k"), link.Of(tr).Scripts.Shard(slot.OfTag("a"))
		redistest.Must(t, assert.ErrOf(tr.Transact(t.Context(), "a", func(*luatx.Tx) error { return nil }, luatx.WithID("before"))))
		redistest.Must(t, client.Set(t.Context(), home.Key("pending"), "text", 0).Err())
		before := rig.Dump(t, client, tr)
		err := emitting(t, tr, k, "SET K v")
		if failed, ok := errors.AsType[*luatx.CommandError](err); !ok || failed.Index != -1 || !strings.Contains(failed.Text, "WRONGTYPE") {
			t.Errorf("error %v", err)
		}
		rig.NoTrace(t, client, tr, before)
	})
}

func TestTransactionBehindABrokenOneOfItsBatchFailsByItself(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	tr := rig.NewTransactor(t, client)
	rig.Grant(t, admin, "-restore") // after the check
	k, wrong := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "wrong")
	rig.Run(t, admin, k, "HSET K f v")
	redistest.Must(t, admin.Set(t.Context(), wrong, "text", 0).Err())
	tx := func(n string, first commit.Command) commit.Commit {
		return commit.Commit{
			Digest: n + "23456789abcdef0", Token: n + "base567\x00\x01", NotAfter: time.Now().Add(time.Minute), Keys: []string{k, k + "2", wrong},
			Commands: []commit.Command{first, {Head: "h04", Args: []any{"HSET", wrong, "f", "v"}}, rig.Set(k+"2", "not reached")},
		}
	}
	batch := []commit.Commit{tx("a", commit.Command{Head: "D02", Args: []any{"DEL", k}}), tx("b", rig.Set(k+"2", "v"))}
	outcomes, _, err := rig.Commit(redistest.Soon(t), tr, link.Of(tr).Scripts.Shard(slot.OfTag("a")), batch)
	redistest.Must(t, err)
	if outcomes[0].State != commit.Broken || outcomes[1].State != commit.Failed || outcomes[1].Index != 2 {
		t.Errorf("%+v", outcomes)
	}
	assert.Equal(t, admin.Exists(t.Context(), k+"2").Val(), 0, "keys of the second")
}

func TestProcedureMayNotRunACommandThatTakesTooMuchToUndo(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.UndoBytes, c.Procedures = 100, []luatx.Procedure{through} })
	k := rig.Key(t, tr, "a", "k")
	rig.Run(t, client, k, "SET K "+strings.Repeat("x", 200))
	before := rig.Dump(t, client, tr)
	err := assert.ErrOf(tr.Transact(t.Context(), "a", func(tx *luatx.Tx) error {
		record(t.Context(), tx, rig.Words("THROUGH APPEND K y", k), k)
		return nil
	}))
	assert.ErrorContains(t, err, "APPEND cannot be undone: it takes more than 100 bytes", "a procedure")
	rig.NoTrace(t, client, tr, before)
}

// TestKeyAsLargeAsTheCapIsUndone measures the key by the command that the user may run: MEMORY, or else DUMP.
func TestKeyAsLargeAsTheCapIsUndone(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	for _, right := range []string{"-memory", "+memory"} {
		rig.Grant(t, admin, right)
		for _, less := range []int{1, 0} {
			var size int
			keyed := rig.NewTransactor(t, client)
			k := rig.Key(t, keyed, "a", "k")
			rig.Run(t, admin, k, "SET K v;RPUSH K:l "+rand.Text()+rand.Text()+rand.Text())
			if right == "-memory" {
				size = len(admin.Dump(t.Context(), k+":l").Val())
			} else {
				size = int(admin.MemoryUsage(t.Context(), k+":l").Val())
			}
			tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Namespace, c.UndoBytes = keyed.Config().Namespace, size-less })
			_, err := rig.Transact(t, tr, k, "LPOP K:l;LPUSH K wrong")
			want := map[int]string{0: "WRONGTYPE", 1: "cannot be undone: it takes more than"}[less]
			assert.ErrorContains(t, err, want, "%s, a cap of %d bytes and a key of %d", right, size-less, size)
			redistest.Must(t, admin.Del(t.Context(), k, k+":l").Err())
		}
	}
}

// expiring runs the fragment of the undo on a stand-in of a server without PEXPIRETIME. It returns the expiry that it keeps of a key.
var expiring = redis.NewScript(`
local times, left, undo, now = cjson.decode(ARGV[1]), cjson.decode(ARGV[2]), {}, 0
local redis = {call = function(name) return table.remove(name == 'TIME' and times or left, 1) end}
` + lua.Substitute(lua.Fragment("_undo_rare"), nil, map[string]string{"UNDO_BYTES": "100"}) + `
push_expiry('k')
return undo[1] and undo[1][1] .. ' ' .. undo[1][2] .. ' ' .. undo[1][3] or ''`)

func TestExpiryIsTakenFromAClockThatStandsStill(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, c := range map[string]struct{ times, left, want string }{
			"at once":             {`[["100","999900"],["100","999950"]]`, `[5,5]`, "PEXPIREAT k 101004"},
			"the next ms":         {`[["100","1900"],["100","2000"],["100","2100"],["100","2999"]]`, `[8,8,7]`, "PEXPIREAT k 100009"},
			"the next second":     {`[["100","1900"],["101","1950"],["101","1960"],["101","1970"]]`, `[8,8,7]`, "PEXPIREAT k 101008"},
			"in this ms":          {`[["100","1900"],["100","1900"]]`, `[0,0]`, "PEXPIREAT k 100002"},
			"in the next ms":      {`[["100","1900"],["100","1900"]]`, `[1,1]`, "PEXPIREAT k 100002"},
			"never":               {`[]`, `[-1]`, ""},
			"that does not exist": {`[]`, `[-2]`, ""},
		} {
			got, err := expiring.Run(redistest.Soon(t), client, []string{"{" + redistest.Tag(t) + "}"}, c.times, c.left).Text()
			if err != nil || got != c.want {
				t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
			}
		}
	})
}
