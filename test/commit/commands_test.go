package commit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

func TestConditionalWritesReturnErrNotCommitted(t *testing.T) {
	t.Parallel()
	tr := rig.NewTransactor(t, redistest.Shared(t).Client(t))
	k := rig.Key(t, tr, "a", "k")
	stop := errors.New("nothing is to be sent")
	for name, record := range map[string]func(context.Context, redis.Pipeliner) error{
		"SET IFEQ":  func(ctx context.Context, p redis.Pipeliner) error { return p.SetIFEQ(ctx, k, "new", "old", 0).Err() },
		"SET IFNE":  func(ctx context.Context, p redis.Pipeliner) error { return p.SetIFNE(ctx, k, "new", "old", 0).Err() },
		"SET IFDEQ": func(ctx context.Context, p redis.Pipeliner) error { return p.SetIFDEQ(ctx, k, "new", 7, 0).Err() },
		"SET IFDNE": func(ctx context.Context, p redis.Pipeliner) error { return p.SetIFDNE(ctx, k, "new", 7, 0).Err() },
		"MSETEX NX": func(ctx context.Context, p redis.Pipeliner) error {
			return p.MSetEX(ctx, redis.MSetEXArgs{Condition: redis.NX}, k, "v").Err()
		},
		"EXPIRE NX": func(ctx context.Context, p redis.Pipeliner) error { return p.ExpireNX(ctx, k, time.Hour).Err() },
		"ZADD NX": func(ctx context.Context, p redis.Pipeliner) error {
			return p.ZAddNX(ctx, k, redis.Z{Member: "m"}).Err()
		},
		"XADD NOMKSTREAM": func(ctx context.Context, p redis.Pipeliner) error {
			return p.XAdd(ctx, &redis.XAddArgs{Stream: k, NoMkStream: true, Values: []any{"f", "v"}}).Err()
		},
		"XDELEX ACKED": func(ctx context.Context, p redis.Pipeliner) error { return p.XDelEx(ctx, k, "ACKED", "1-1").Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tr.Transact(t.Context(), "a", func(tx *luatx.Tx) error {
				assert.Is(t, record(t.Context(), tx.Pipeline()), luatx.ErrNotCommitted, "the recorded command")
				return stop
			})
			assert.Is(t, err, stop, "the transaction")
		})
	}
}

func TestConditionalWritesReturnTheirReplyAfterTheCommit(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		k, free := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "free")
		client.Set(ctx, k, "old", 0)
		probe := client.SetIFEQ(ctx, k, "old", "old", 0).Err()
		if probe != nil {
			t.Skip("the server has no SET IFEQ: ", probe)
		}
		var swapped, refused *redis.StatusCmd
		var both *redis.IntCmd
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			swapped = tx.Pipeline().SetIFEQ(ctx, k, "new", "old", 0)
			refused = tx.Pipeline().SetIFEQ(ctx, k, "newer", "old", 0)
			if rig.Knows(t, client, "MSETEX") {
				both = tx.Pipeline().MSetEX(ctx, redis.MSetEXArgs{Condition: redis.NX}, k, "v", free, "v")
			}
			return nil
		})
		redistest.Must(t, err)
		if swapped.Err() != nil || swapped.Val() != "OK" || !errors.Is(refused.Err(), redis.Nil) {
			t.Errorf("the first swap: %v; the second one: %v", swapped, refused)
		}
		if both != nil && (both.Err() != nil || both.Val() != 0) {
			t.Errorf("MSETEX NX of a key that exists: %v", both)
		}
		assert.Equal(t, client.Get(ctx, k).Val(), "new", "the value")
	})
}

func TestCopyWithADatabaseIsRefusedAndWithoutOneCommits(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := rig.NewTransactor(t, client), redistest.Soon(t)
		source, destination := rig.Key(t, tr, "a", "source"), rig.Key(t, tr, "a", "destination")
		redistest.Must(t, client.MSet(ctx, source, "new", destination, "old").Err())
		if err := client.Do(ctx, "COPY", source, source+"-copy").Err(); err != nil && strings.Contains(err.Error(), "unknown command") {
			t.Skip("COPY needs Redis 6.2")
		}
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			return luatx.Queued(tx.Pipeline().Copy(ctx, source, destination, 0, true))
		})
		if !errors.Is(err, luatx.ErrCommandRefused) || !strings.Contains(err.Error(), `Do(ctx, "COPY", source, destination)`) {
			t.Fatalf("Copy with a database: %v", err)
		}
		var copied *redis.Cmd
		_, err = tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			copied = tx.Pipeline().Do(ctx, "COPY", source, destination, "REPLACE")
			return luatx.Queued(copied)
		})
		if n, replyErr := copied.Int(); err != nil || n != 1 || replyErr != nil {
			t.Errorf("COPY without a database: %v, reply %d, %v", err, n, replyErr)
		}
		assert.Equal(t, client.Get(ctx, destination).Val(), "new", "the destination")
	})
}

const beyond = 9007199254740993 // 2^53 + 1, which Lua cannot distinguish from 2^53

func TestIntegersBeyond53BitsReturnAsTheyAreAlsoFromKeptReplies(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx, tr := t.Context(), rig.NewTransactor(t, client)
	k := func(part string) string { return rig.Key(t, tr, "a", part) }
	client.Set(ctx, k("n"), beyond-1, 0)
	client.Set(ctx, k("m"), -(beyond - 1), 0)
	client.HSet(ctx, k("h"), "f", beyond-1)
	for _, want := range []luatx.Outcome{luatx.Committed, luatx.Duplicate} {
		var count, less, field, up, down, rounded *redis.Cmd
		var bits *redis.IntSliceCmd
		result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			count = tx.Pipeline().Do(ctx, "INCR", k("n"))
			less = tx.Pipeline().Do(ctx, "DECR", k("m"))
			field = tx.Pipeline().Do(ctx, "hincrby", k("h"), "f", 1)
			up, down = tx.Pipeline().Do(ctx, "INCRBY", k("up"), beyond), tx.Pipeline().Do(ctx, "DECRBY", k("down"), beyond)
			rounded = tx.Pipeline().Do(ctx, "INCRBY", k("rounded"), int64(1e15))
			bits = tx.Pipeline().BitField(ctx, k("b"), "SET", "i64", 0, -beyond, "GET", "i64", 0, "INCRBY", "u63", 64, beyond, "GET", "u8", 0)
			return nil
		}, luatx.WithID("x"), luatx.KeepReplies())
		if err != nil || result.Outcome != want {
			t.Fatalf("%v, %v", result.Outcome, err)
		}
		got := []any{count.Val(), field.Val(), up.Val(), less.Val(), down.Val(), rounded.Val()}
		if !slices.Equal(got, []any{int64(beyond), int64(beyond), int64(beyond), int64(-beyond), int64(-beyond), int64(1e15)}) {
			t.Errorf("%v: counters %v", want, got)
		}
		if !slices.Equal(bits.Val(), []int64{0, -beyond, beyond, 255}) {
			t.Errorf("%v: bits %v", want, bits)
		}
	}
}

func TestCounterWithin53BitsNeedsNoRightToReadItsKey(t *testing.T) {
	t.Parallel()
	client, _ := rig.NewUser(t, "+@all", "-get")
	tr := rig.NewTransactor(t, client)
	assert.NoError(t, assert.ErrOf(tr.Transact(redistest.Soon(t), "a", rig.Incr)), "the transaction")
}

func TestGuardedReadOfAnIntegerBeyond53BitsIsAnError(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	if !rig.Knows(t, client, "PEXPIRETIME") {
		t.Skip("PEXPIRETIME needs Redis 7.0")
	}
	k := rig.Key(t, tr, "a", "k")
	redistest.Must(t, client.Set(ctx, k, "v", 0).Err(), client.Do(ctx, "PEXPIREAT", k, beyond).Err())
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		cmds, err := tx.Read().Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Exists(ctx, k)
			p.PExpireTime(ctx, k)
			return nil
		})
		assert.ErrorContains(t, err, "cannot be guarded", "the reads")
		assert.NoError(t, cmds[0].Err(), "the other read")
		return nil
	})
	assert.NoError(t, err, "the transaction")
}

func TestGuardDistinguishesIntegersBeyond53Bits(t *testing.T) {
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
	assert.Is(t, err, luatx.ErrConflict, "the transaction")
}

func TestIntegerFrom2To53OnCannotBeGuarded(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	if !rig.Knows(t, client, "PEXPIRETIME") {
		t.Skip("no read returns such an integer before Redis 7.0")
	}
	k := rig.Key(t, tr, "a", "k")
	for ms, says := range map[int64]string{beyond - 2: "", beyond - 1: "cannot be guarded"} {
		redistest.Must(t, client.Set(ctx, k, "v", 0).Err(), client.Do(ctx, "PEXPIREAT", k, ms).Err())
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			var at *redis.Cmd
			_, _ = tx.Read().Pipelined(ctx, func(p redis.Pipeliner) error {
				at = p.Do(ctx, "PEXPIRETIME", k)
				return nil
			})
			if got, err := at.Int64(); says == "" && (err != nil || got != ms) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
				t.Errorf("the expiry at %d ms is read as %d, %v", ms, got, err)
			}
			return nil
		})
		assert.NoError(t, err, "the transaction")
	}
}
