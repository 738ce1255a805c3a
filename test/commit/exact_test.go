package commit_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
)

const beyond = 9007199254740993 // 2^53 + 1, which Lua cannot tell from 2^53

// TestExactReplies holds that integers beyond 2^53 come back as they are, as what Do returns too, and from replies
// that were kept.
func TestExactReplies(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx, tr := t.Context(), rig.NewTransactor(t, client)
	k := func(part string) string { return rig.Key(t, tr, "a", part) }
	client.Set(ctx, k("n"), beyond-1, 0)
	client.HSet(ctx, k("h"), "f", beyond-1)
	for _, want := range []luatx.Outcome{luatx.Committed, luatx.Duplicate} {
		var count, field *redis.Cmd
		var bits *redis.IntSliceCmd
		result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			count = tx.Pipeline().Do(ctx, "INCR", k("n"))
			field = tx.Pipeline().Do(ctx, "hincrby", k("h"), "f", 1)
			bits = tx.Pipeline().BitField(ctx, k("b"), "SET", "i64", 0, -beyond, "GET", "i64", 0, "INCRBY", "u63", 64, beyond, "GET", "u8", 0)
			return nil
		}, luatx.WithID("x"), luatx.KeepReplies())
		if err != nil || result.Outcome != want {
			t.Fatalf("%v, %v", result.Outcome, err)
		}
		if count.Val() != int64(beyond) || field.Val() != int64(beyond) {
			t.Errorf("%v: counters %v, %v", want, count, field)
		}
		if !slices.Equal(bits.Val(), []int64{0, -beyond, beyond, 255}) {
			t.Errorf("%v: bits %v", want, bits)
		}
	}
}

// TestExactGuard holds that a guarded read tells integers apart that Lua does not.
func TestExactGuard(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx, tr := t.Context(), rig.NewTransactor(t, client, func(c *luatx.Config) { c.ConflictRetries = -1 })
	k := rig.Key(t, tr, "a", "b")
	client.BitField(ctx, k, "SET", "i64", 0, beyond)
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		read := tx.Read().BitFieldRO(ctx, k, "i64", 0)
		if !slices.Equal(read.Val(), []int64{beyond}) {
			t.Errorf("read %v", read)
		}
		client.BitField(ctx, k, "SET", "i64", 0, beyond-1)
		tx.Pipeline().Set(ctx, rig.Key(t, tr, "a", "k"), "v", 0)
		return nil
	})
	if !errors.Is(err, luatx.ErrConflict) {
		t.Errorf("error %v", err)
	}
}
