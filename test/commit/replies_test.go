package commit_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
)

// shardKey returns a key of luatx's own.
func shardKey(tr *luatx.Transactor, tag, name string) string {
	return link.Of(tr).Scripts.Shard(slot.OfTag(tag)).Key(name)
}

func TestRetryReturnsTheRepliesOfTheFirstCall(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		n, h, s := rig.Key(t, tr, "a", "n"), rig.Key(t, tr, "a", "h"), rig.Key(t, tr, "a", "s")
		client.Set(ctx, n, "9007199254740992", 0)
		client.HSet(ctx, h, "f", "\r\n\xff")
		var entry *redis.StringCmd // the commit runs an XADD after the other commands
		call := func(more int, opts ...luatx.Option) (luatx.Result, *redis.IntCmd, *redis.SliceCmd) {
			var count *redis.IntCmd
			var fields *redis.SliceCmd
			result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				entry = tx.Pipeline().XAdd(ctx, &redis.XAddArgs{Stream: s, Values: []string{"f", "v"}})
				count, fields = tx.Pipeline().Incr(ctx, n), tx.Pipeline().HMGet(ctx, h, "f", "no")
				for range more {
					tx.Pipeline().Incr(ctx, n)
				}
				return nil
			}, append(opts, luatx.WithID("call"))...)
			redistest.Must(t, err)
			return result, count, fields
		}
		for _, want := range []luatx.Outcome{luatx.Committed, luatx.Duplicate, luatx.Duplicate} {
			result, count, fields := call(0, luatx.KeepReplies())
			if result.Outcome != want || count.Val() != 9007199254740993 || count.Err() != nil {
				t.Errorf("%v: %v", result.Outcome, count)
			}
			if v := fields.Val(); len(v) != 2 || v[0] != "\r\n\xff" || v[1] != nil {
				t.Errorf("%v: %v", result.Outcome, fields)
			}
			if added := client.XRange(ctx, s, "-", "+").Val(); len(added) != 1 || entry.Val() != added[0].ID {
				t.Errorf("%v: %v, and the stream holds %v", result.Outcome, entry, added)
			}
		}
		if _, count, _ := call(0); !errors.Is(count.Err(), luatx.ErrRepliesLost) {
			t.Errorf("a call that does not ask for them: %v", count)
		}
		if _, count, _ := call(1, luatx.KeepReplies()); !errors.Is(count.Err(), luatx.ErrRepliesLost) {
			t.Errorf("a call of other commands: %v", count)
		}
	})
}

func TestKeptRepliesBelongToTheirCommandsIfARetryHasMoreArguments(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		info, account := rig.Key(t, tr, "a", "info"), rig.Key(t, tr, "a", "account")
		for _, fields := range [][]any{{"f", "v"}, {"f", "v", "g", "w"}} {
			var balance *redis.IntCmd
			_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				tx.Pipeline().HSet(ctx, info, fields...)
				balance = tx.Pipeline().HIncrBy(ctx, account, "pence", 100)
				return nil
			}, luatx.WithID("x"), luatx.KeepReplies())
			redistest.Must(t, err)
			assert.Equal(t, balance.Val(), int64(100), "the balance beside %v", fields)
		}
	})
}

func TestCommitWithLargeRepliesForgetsThoseOfAnEarlierCommitOfItsID(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server, tr := atClock(t, start)
	ctx, k, retention := redistest.Soon(t), rig.Key(t, tr, "a", "k"), tr.Config().Retention
	call := func(id string) (luatx.Outcome, error) {
		var got *redis.StringCmd
		result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			got = tx.Pipeline().Get(ctx, k)
			return nil
		}, luatx.WithID(id), luatx.KeepReplies())
		redistest.Must(t, err)
		return result.Outcome, got.Err()
	}
	for _, rotated := range []bool{false, true} { // the replies, too
		id := fmt.Sprint("x", rotated)
		_ = server.Set(k, "small")
		_, _ = call(id)
		for range 2 {
			start = start.Add(retention)
			server.SetTime(start)
			_, err := tr.Transact(ctx, "a", rig.Incr)
			redistest.Must(t, err)
		}
		if rotated {
			_, _ = call("other")
		}
		_ = server.Set(k, strings.Repeat("x", tr.Config().KeepBytes))
		outcome, _ := call(id)
		assert.Equal(t, outcome, luatx.Committed, "after two rotations of the inbox")
		outcome, err := call(id)
		assert.Equal(t, outcome, luatx.Duplicate, "a retry")
		assert.Is(t, err, luatx.ErrRepliesLost, "the replies of a retry")
	}
}

func TestKeptRepliesReturnAfterALostReply(t *testing.T) {
	t.Parallel()
	proxy, through, past := rig.Proxied(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, through)
	n := rig.Key(t, tr, "a", "n")
	rig.Warm(t, tr)
	proxy.DropReply(1, respproxy.Command("EVALSHA"))
	var count *redis.IntCmd
	result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		count = tx.Pipeline().Incr(ctx, n)
		return nil
	}, luatx.WithID("x"), luatx.KeepReplies())
	if err != nil || result.Outcome != luatx.Replayed || count.Val() != 1 || count.Err() != nil {
		t.Errorf("%v, %v, %v", result, err, count)
	}
	assert.Equal(t, past.Get(ctx, n).Val(), "1", "applied")
}

func TestPartsOfTheReplyOfAProcedureAreKept(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr := rig.NewTransactor(t, client, withProcedures(luatx.Procedure{
			Name: "some", Source: `return {true, redis.status_reply('DONE'), redis.error_reply('LATE two words'), false, 7}`,
		}))
		for _, want := range []luatx.Outcome{luatx.Committed, luatx.Duplicate} {
			var reply *redis.Cmd
			result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				reply = tx.Call("some", nil)
				return nil
			}, luatx.WithID("x"), luatx.KeepReplies())
			redistest.Must(t, err)
			parts, err := reply.Slice()
			if result.Outcome != want || err != nil || fmt.Sprint(parts) != "[1 DONE LATE two words <nil> 7]" {
				t.Errorf("%v: %v, %v", result.Outcome, parts, err)
			}
		}
	})
}

func TestKeptRepliesAreBoundedAndGoWithTheirGeneration(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server, tr := atClock(t, start)
	ctx := redistest.Soon(t)
	k := rig.Key(t, tr, "a", "k")
	_ = server.Set(k, strings.Repeat("x", tr.Config().KeepBytes))
	call := func(id string, keys ...string) error {
		var cmds []*redis.StringCmd
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			for _, k := range keys {
				cmds = append(cmds, tx.Pipeline().Get(ctx, k))
			}
			return nil
		}, luatx.WithID(id), luatx.KeepReplies())
		redistest.Must(t, err)
		if err := cmds[0].Err(); !errors.Is(err, redis.Nil) {
			return err
		}
		return nil
	}
	_ = call("large", k)
	assert.Is(t, call("large", k), luatx.ErrRepliesLost, "more than KeepBytes")
	_ = call("small", k+"2")
	_, _ = call("second", k+"2"), call("third", k+"2")
	assert.NoError(t, call("small", k+"2"), "as it was")
	retention := tr.Config().Retention
	server.SetTime(start.Add(retention - time.Minute))
	_ = call("later", k+"2")
	assert.NoError(t, call("small", k+"2"), "within the retention")
	server.SetTime(start.Add(retention))
	_ = call("latest", k+"2")
	assert.NoError(t, call("later", k+"2"), "of the generation before")
	assert.Equal(t, server.HGet(shardKey(tr, "a", "results:b"), "start"), msOf(start.Add(retention)), "the time of its last reply at the latest")
	server.SetTime(start.Add(2*retention + 2*time.Minute))
	_ = call("last", k+"2")
	if n := len(hashFields(server.HKeys(shardKey(tr, "a", "results")))) + len(hashFields(server.HKeys(shardKey(tr, "a", "results:b")))); n != 4 {
		t.Errorf("%d fields are kept, want a start and an id in either generation", n)
	}
}

func TestRepliesOfACommitAreKeptUpToKeepBytesInAll(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.KeepBytes = 100 })
		k := rig.Key(t, tr, "a", "k")
		for _, c := range []struct {
			size, reads int // 7 bytes are added in front of and behind each reply
			want        error
		}{{93, 1, nil}, {94, 1, luatx.ErrRepliesLost}, {43, 2, nil}, {44, 2, luatx.ErrRepliesLost}} {
			redistest.Must(t, client.Set(ctx, k, strings.Repeat("x", c.size), 0).Err())
			for _, known := range []bool{false, true} {
				replies := make([]*redis.StringCmd, c.reads)
				_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
					for i := range replies {
						replies[i] = tx.Pipeline().Get(ctx, k)
					}
					return nil
				}, luatx.WithID(fmt.Sprint(c.size)), luatx.KeepReplies())
				redistest.Must(t, err)
				for _, reply := range replies {
					if err := reply.Err(); known && !errors.Is(err, c.want) || !known && err != nil || err == nil && len(reply.Val()) != c.size {
						t.Errorf("%d times %d bytes, known %t: %v", c.reads, c.size, known, err)
					}
				}
			}
		}
	})
}

func TestGenerationKeepsTheRepliesOf100000Transactions(t *testing.T) {
	t.Parallel()
	server, tr := atClock(t, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ctx, results := redistest.Soon(t), shardKey(tr, "a", "results")
	call := func(id string) (fields int) {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			tx.Pipeline().Get(ctx, rig.Key(t, tr, "a", "k"))
			return nil
		}, luatx.WithID(id), luatx.KeepReplies())
		redistest.Must(t, err)
		return len(hashFields(server.HKeys(results)))
	}
	assert.Equal(t, call("first"), 2, "fields with the start")
	var more []string
	for i := range 99_998 {
		more = append(more, fmt.Sprint(i), "1:$-1\r\n")
	}
	server.HSet(results, more...)
	assert.Equal(t, call("last"), 100_001, "fields of a full generation")
	assert.Equal(t, call("next"), 2, "fields of the next generation")
}

func hashFields(fields []string, err error) []string {
	if err != nil {
		return nil
	}
	return fields
}

func TestKeepRepliesNeedsAnID(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client)
	_, err := tr.Transact(t.Context(), "a", func(*luatx.Tx) error { return nil }, luatx.KeepReplies())
	assert.ErrorContains(t, err, "WithID", "the transaction")
}

func TestReceiptResolvesToCommittedOrNever(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"executed": true, "still on its way": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through, past := rig.Proxied(t)
			ctx := redistest.Soon(t)
			tr := rig.NewTransactor(t, through)
			n := rig.Key(t, tr, "a", "n")
			rig.Warm(t, tr)
			// The first commit is executed or waits, and nothing after it arrives.
			hold := respproxy.NewHold()
			var deaf, first atomic.Bool
			deaf.Store(true)
			proxy.On(func(cmd []string) respproxy.Action {
				switch {
				case !deaf.Load() || !strings.EqualFold(cmd[0], "evalsha"):
					return respproxy.Pass()
				case !first.CompareAndSwap(false, true):
					return respproxy.DropRequest()
				case arrives:
					return respproxy.CutReply()
				}
				return respproxy.HoldBy(hold)
			})
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			_, err := tr.Transact(short, "a", rig.Incr, luatx.WithID("x"))
			unknown, ok := errors.AsType[*luatx.UnknownError](err)
			if !ok || !errors.Is(err, luatx.ErrOutcomeUnknown) {
				t.Fatalf("error %v", err)
			}
			deaf.Store(false)
			for range 2 {
				result, err := tr.Resolve(ctx, unknown.Receipt)
				if arrives && (err != nil || result.Outcome != luatx.Replayed) || !arrives && !errors.Is(err, luatx.ErrExpired) {
					t.Errorf("resolved: %v, %v", result, err)
				}
			}
			before := rig.Executed(t, past)
			hold.Release()
			if !arrives {
				redistest.Eventually(t, "the held commit to arrive", func() bool { return rig.Executed(t, past) > before })
				assert.Equal(t, past.Exists(ctx, n).Val(), 0, "effects after it was resolved")
			}
			rig.NoError(t, assert.ErrOf(tr.Transact(ctx, "a", rig.Incr, luatx.WithID("x"))))
			assert.Equal(t, past.Get(ctx, n).Val(), "1", "applied")
		})
	}
}

// unknownCommit commits, loses the reply, and returns the receipt.
func unknownCommit(t testing.TB, proxy *respproxy.Proxy, tr *luatx.Transactor) luatx.Receipt {
	t.Helper()
	var over, executed atomic.Bool
	defer over.Store(true)
	proxy.On(func(cmd []string) respproxy.Action {
		switch {
		case over.Load() || !strings.EqualFold(cmd[0], "evalsha"):
			return respproxy.Pass()
		case !executed.Swap(true):
			return respproxy.CutReply()
		}
		return respproxy.CutRequest()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := tr.Transact(ctx, "a", rig.Incr, luatx.WithID("x"))
	unknown, ok := errors.AsType[*luatx.UnknownError](err)
	if !ok {
		t.Fatalf("error %v", err)
	}
	return unknown.Receipt
}

// TestResolveAfterTheRetentionReturnsErrReceiptExpired also resolves a receipt of a Transactor with a longer retention.
func TestResolveAfterTheRetentionReturnsErrReceiptExpired(t *testing.T) {
	t.Parallel()
	for name, retention := range map[string]time.Duration{"of the receipt": 2 * time.Second, "shorter than that of the receipt": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through, _ := rig.Proxied(t)
			before := rig.NewTransactor(t, through, func(c *luatx.Config) { c.CommitTimeout, c.Retention = 200*time.Millisecond, retention })
			settings := before.Config()
			settings.Retention = 2 * time.Second
			tr, err := luatx.New(through, settings)
			redistest.Must(t, err)
			rig.Warm(t, tr) // its retention ends the generation
			rig.Warm(t, before)
			receipt := unknownCommit(t, proxy, before)
			ctx := redistest.Soon(t)
			redistest.Eventually(t, "the receipt to expire", func() bool {
				_, err := tr.Resolve(ctx, receipt)
				if errors.Is(err, luatx.ErrExpired) {
					t.Fatal("Resolve says that a commit which took effect never will")
				}
				return errors.Is(err, luatx.ErrReceiptExpired)
			})
			if result, err := tr.Transact(ctx, "a", rig.Incr, luatx.WithID("x")); err != nil || result.Outcome != luatx.Committed {
				t.Errorf("%v, %v, want that a forgotten id is committed again", result.Outcome, err)
			}
			if result, err := tr.Resolve(ctx, receipt); !errors.Is(err, luatx.ErrReceiptExpired) {
				t.Errorf("%v, %v: that another call is in says nothing about the first one", result.Outcome, err)
			}
		})
	}
}

func TestResolveReturnsErrReceiptForeignAndErrReceiptInvalid(t *testing.T) {
	t.Parallel()
	proxy, through, _ := rig.Proxied(t)
	tr := rig.NewTransactor(t, through)
	rig.Warm(t, tr)
	receipt, ctx := unknownCommit(t, proxy, tr), redistest.Soon(t)
	if _, err := rig.NewTransactor(t, through).Resolve(ctx, receipt); !errors.Is(err, luatx.ErrReceiptForeign) || !strings.Contains(err.Error(), tr.Config().Namespace) {
		t.Errorf("of another namespace: %v", err)
	}
	for n := range len(receipt) {
		assert.Is(t, assert.ErrOf(tr.Resolve(ctx, receipt[:n])), luatx.ErrReceiptInvalid, "the first %d bytes of %d", n, len(receipt))
	}
	for name, change := range map[string]func(fields []string) []string{
		"too few fields":       func(fields []string) []string { return fields[:3] },
		"another version":      func(fields []string) []string { fields[0] = "0"; return fields },
		"slot out of range":    func(fields []string) []string { fields[1] = "16384"; return fields },
		"slot that is none":    func(fields []string) []string { fields[1] = ""; return fields },
		"digest that is none":  func(fields []string) []string { fields[2] = "x"; return fields },
		"short digest":         func(fields []string) []string { fields[2] = "00"; return fields },
		"offset without owner": func(fields []string) []string { fields[3] = "1"; return fields },
		"owner that is none":   func(fields []string) []string { fields[4] = "x"; return fields },
		"token that is none":   func(fields []string) []string { fields[5] = "x"; return fields },
		"short token":          func(fields []string) []string { fields[5] = "00"; return fields },
		"end that is none":     func(fields []string) []string { fields[6] = "x"; return fields },
		"time that is none":    func(fields []string) []string { fields[7] = "x"; return fields },
	} {
		fields := string(receipt[:strings.LastIndexByte(string(receipt), '-')])
		changed := strings.Join(change(strings.SplitN(fields, "-", 9)), "-")
		signed := luatx.Receipt(fmt.Sprintf("%s-%08x", changed, crc32.ChecksumIEEE([]byte(changed))))
		assert.Is(t, assert.ErrOf(tr.Resolve(ctx, signed)), luatx.ErrReceiptInvalid, "%s: %s", name, signed)
	}
	if result, err := tr.Resolve(ctx, receipt); err != nil || result.Outcome != luatx.Replayed {
		t.Errorf("the whole: %v, %v", result, err)
	}
}
