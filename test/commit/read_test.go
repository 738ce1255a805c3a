package commit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

func TestFunctionRunsAgainOnlyIfItsReadsHaveChanged(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		k, other := rig.Key(t, tr, "a", "account"), rig.Key(t, tr, "a", "other")
		client.HSet(ctx, k, "balance", 10, "name", "ann")
		runs := 0
		result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			runs++
			balance, err := tx.Read().HGet(ctx, k, "balance").Int()
			if err != nil {
				return err
			}
			switch runs {
			case 1: // changes to another field of the same key do not conflict
				client.HSet(ctx, k, "name", "bob")
				client.HSet(ctx, k, "balance", 20)
			case 2:
				client.HSet(ctx, k, "name", "cid")
			}
			tx.Pipeline().HSet(ctx, other, "seen", balance)
			return nil
		})
		if err != nil || result.Outcome != luatx.Committed || runs != 2 {
			t.Fatalf("%v, %v after %d runs", result, err, runs)
		}
		assert.Equal(t, client.HGet(ctx, other, "seen").Val(), "20", "the balance that the commit rests on")
	})
}

func TestGuardOfEveryKindOfReplyNoticesAChange(t *testing.T) {
	t.Parallel()
	type guard struct {
		name, setup, change string
		same                string // a change that keeps the reply
		read                func(redis.Cmdable, string) redis.Cmder
	}
	for _, c := range []guard{
		{"missing", "", "SET K v", "DEL K", func(c redis.Cmdable, k string) redis.Cmder { return c.Get(t.Context(), k) }},
		{"empty is not missing", "SET K x", "DEL K", "SET K x", func(c redis.Cmdable, k string) redis.Cmder { return c.GetRange(t.Context(), k, 0, 0) }},
		{"2^53", "SET K 9007199254740992", "SET K 9007199254740993", "APPEND K ", func(c redis.Cmdable, k string) redis.Cmder { return c.Get(t.Context(), k) }},
		{"several", "SET K a", "SET K ab", "SET K a", func(c redis.Cmdable, k string) redis.Cmder { return c.MGet(t.Context(), k, k+"2") }},
		{"members", "SADD K a b c", "SADD K d", "SREM K b|SADD K b", func(c redis.Cmdable, k string) redis.Cmder { return c.SMembers(t.Context(), k) }},
		{"pairs", "HSET K a b c d", "HSET K a d c b", "HDEL K a|HSET K a b", func(c redis.Cmdable, k string) redis.Cmder { return c.HGetAll(t.Context(), k) }},
		{"values there twice", "HSET K a x b x c z", "HSET K a y b y", "HSET K a z c x", func(c redis.Cmdable, k string) redis.Cmder { return c.HVals(t.Context(), k) }},
		{"field and value", "HSET K ab c", "DEL K|HSET K a bc", "HSET K ab c", func(c redis.Cmdable, k string) redis.Cmder { return c.HGetAll(t.Context(), k) }},
		{"a separator in a field or value", "HSET K a:b c", "DEL K|HSET K a b:c", "HSET K a:b c", func(c redis.Cmdable, k string) redis.Cmder { return c.HGetAll(t.Context(), k) }},
		{"order", "RPUSH K a b", "RPOPLPUSH K K", "RPUSH K c|RPOP K", func(c redis.Cmdable, k string) redis.Cmder { return c.LRange(t.Context(), k, 0, -1) }},
		{"range of a sorted set", "ZADD K 1 a 2 b", "ZADD K 3 a", "ZADD K 1 a", func(c redis.Cmdable, k string) redis.Cmder {
			return c.ZRangeWithScores(t.Context(), k, 0, -1)
		}},
		{"wrong type", "SADD K a", "DEL K", "SADD K b", func(c redis.Cmdable, k string) redis.Cmder { return c.Get(t.Context(), k) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				ctx := redistest.Soon(t)
				tr := rig.NewTransactor(t, client, func(cfg *luatx.Config) { cfg.ConflictRetries = -1 })
				k := rig.Key(t, tr, "a", "k")
				do := func(lines string) {
					for line := range strings.SplitSeq(lines, "|") {
						if line == "" {
							continue
						}
						args := rig.Words(line, k)
						if args[0] == "APPEND" {
							args = append(args, "")
						}
						if err := client.Do(ctx, args...).Err(); err != nil {
							t.Fatalf("%s: %v", line, err)
						}
					}
				}
				run := func(between string) error {
					return assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
						cmd := c.read(tx.Read(), k)
						err := cmd.Err()
						wrong := err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE")
						if wrong != (c.name == "wrong type") || !wrong && err != nil && !errors.Is(err, redis.Nil) {
							t.Errorf("the read answers %v", err)
						}
						do(between)
						return tx.Emit(luatx.Event{Body: []byte("{}")})
					}))
				}
				do(c.setup)
				assert.NoError(t, run(c.same), "nothing changed")
				do("DEL K|" + c.setup)
				before := rig.Dump(t, client, tr)
				assert.Is(t, run(c.change), luatx.ErrConflict, "it changed")
				do("DEL K|" + c.setup)
				rig.NoTrace(t, client, tr, before)
			})
		})
	}
}

func TestHandlerThatDecidedOnATornReadRunsAgain(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		a, b := rig.Key(t, tr, "a", "a"), rig.Key(t, tr, "a", "b")
		for name, verdict := range map[string]error{"fails": errors.New("they differ"), "does nothing": nil} {
			client.MSet(ctx, a, 1, b, 1)
			runs := 0
			_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				runs++
				first := tx.Read().Get(ctx, a).Val()
				if runs == 1 {
					client.MSet(ctx, a, 2, b, 2)
				}
				if tx.Read().Get(ctx, b).Val() != first {
					return verdict
				}
				tx.Pipeline().Set(ctx, a, "equal", 0)
				return nil
			})
			if got := client.Get(ctx, a).Val(); err != nil || runs != 2 || got != "equal" {
				t.Errorf("%s: %v after %d runs, %q", name, err, runs, got)
			}
		}
		failure := errors.New("no")
		if _, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			tx.Read().Get(ctx, a)
			return failure
		}); !errors.Is(err, failure) {
			t.Errorf("a handler that fails on what is true answers %v", err)
		}
	})
}

func TestGuardedReadsInAPipelineAreMadeAtOneMoment(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		a, b := rig.Key(t, tr, "a", "a"), rig.Key(t, tr, "a", "b")
		client.MSet(ctx, a, "x", b, "y")
		for _, pipelined := range []func(redis.Cmdable, func(redis.Pipeliner) error) ([]redis.Cmder, error){
			func(c redis.Cmdable, f func(redis.Pipeliner) error) ([]redis.Cmder, error) {
				return c.Pipelined(ctx, f)
			},
			func(c redis.Cmdable, f func(redis.Pipeliner) error) ([]redis.Cmder, error) {
				return c.TxPipelined(ctx, f)
			},
		} {
			_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				cmds, err := pipelined(tx.Read(), func(p redis.Pipeliner) error {
					p.Get(ctx, a)
					p.MGet(ctx, b, a)
					return nil
				})
				if err != nil || cmds[0].(*redis.StringCmd).Val() != "x" || fmt.Sprint(cmds[1].(*redis.SliceCmd).Val()) != "[y x]" {
					t.Errorf("read %v, %v", cmds, err)
				}
				return nil
			})
			rig.NoError(t, err)
		}
	})
}

func TestGuardedReadRejectsOtherCommands(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	k, foreign := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "b", "k")
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		tx.Pipeline().HSet(ctx, k, "f", 1)
		for name, c := range map[string]struct {
			cmd  redis.Cmder
			want error
		}{
			"a write":              {tx.Read().Incr(ctx, k+"2"), luatx.ErrCommandRefused},
			"a random one":         {tx.Read().SRandMember(ctx, k+"2"), luatx.ErrCommandRefused},
			"time":                 {tx.Read().PTTL(ctx, k+"2"), luatx.ErrCommandRefused},
			"another slot":         {tx.Read().Get(ctx, foreign), luatx.ErrCrossSlot},
			"after a write":        {tx.Read().HGet(ctx, k, "f"), luatx.ErrReadAfterWrite},
			"one of several":       {tx.Read().MGet(ctx, k+"2", k), luatx.ErrReadAfterWrite},
			"a command by itself ": {tx.Read().Ping(ctx), luatx.ErrCommandRefused},
		} {
			assert.Is(t, c.cmd.Err(), c.want, "%s", name)
		}
		return nil
	})
	assert.NoError(t, err, "refused reads keep the transaction from committing")
	var kept redis.Cmdable
	_, _ = tr.Transact(ctx, "a", func(tx *luatx.Tx) error { kept = tx.Read(); return nil })
	assert.Is(t, kept.Get(ctx, k).Err(), luatx.ErrTxClosed, "after the transaction")
}

func TestHandlerOfARouterRunsAgainAndItsMessageCountsOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		k := rig.Key(t, tr, "a", "stock")
		client.Set(ctx, k, 5, 0)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
		msg := in.Deliver("c", rig.Order("1"))
		runs := 0
		r := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
			runs++
			left, err := luatx.ReaderFromContext(ctx, client).Get(ctx, k).Int()
			if err != nil {
				return nil, err
			}
			if runs == 1 {
				client.Decr(ctx, k)
			}
			return nil, luatx.CmdableFromContext(ctx, client).Set(ctx, k, left-1, 0).Err()
		})
		redistest.Must(t, assert.ErrOf(r.Process(ctx, msg)))
		if got := client.Get(ctx, k).Val(); got != "3" || runs != 2 || in.Pending() != 0 {
			t.Errorf("stock %s after %d runs, %d pending", got, runs, in.Pending())
		}
	})
}

func TestFunctionRunsAgainAsOftenAsConflictRetriesSays(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	const retries = 2
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.ConflictRetries = retries })
	ctx, k, runs := redistest.Soon(t), rig.Key(t, tr, "a", "k"), 0
	conflicting := func(tx *luatx.Tx) error {
		runs++
		if err := tx.Read().Get(ctx, k).Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		return errors.Join(client.Incr(ctx, k).Err(), rig.Incr(tx))
	}
	for name, run := range map[string]func() error{
		"Transact": func() error { return assert.ErrOf(tr.Transact(ctx, "a", conflicting)) },
		"TransactBatch": func() error {
			return tr.TransactBatch(ctx, []luatx.BatchItem{{Aggregate: "a", Func: conflicting}})[0].Err
		},
		"Middleware": func() error {
			r := rig.NewRouter(t, message.PipeConfig{}, luatx.Middleware(tr), func(ctx context.Context) ([]*message.Message, error) {
				tx, _ := luatx.TxFromContext(ctx)
				return nil, conflicting(tx)
			})
			return assert.ErrOf(r.Process(ctx, rig.Delivered("1")))
		},
	} {
		runs = 0
		assert.Is(t, run(), luatx.ErrConflict, "%s", name)
		assert.Equal(t, runs, 1+retries, "%s: runs", name)
	}
}

func TestGuardedReadsCountAmongTheLimitsOfATransaction(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx := redistest.Soon(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.MaxCommands, c.MaxBytes = 5, 2000 })
	k := rig.Key(t, tr, "a", "k")
	run := func(reads int, field string) error {
		return assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			for range reads {
				tx.Read().HGet(ctx, k, field)
			}
			return tx.Pipeline().HSet(ctx, k, "g", 1).Err()
		}))
	}
	rig.NoError(t, run(4, "f"))
	for field, reads := range map[string]int{"f": 5, strings.Repeat("f", 1000): 2} {
		assert.Is(t, run(reads, field), luatx.ErrTooLarge, "%d reads of a field of %d bytes", reads, len(field))
	}
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		return assert.ErrOf(tx.Read().Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 6 {
				p.HGet(ctx, k, "f")
			}
			return nil
		}))
	})
	assert.Is(t, err, luatx.ErrTooLarge, "six reads in a pipeline")
}

// TestReadsAndCommandsOfSeveralGoroutinesShareATransaction finds data races under the race detector.
func TestReadsAndCommandsOfSeveralGoroutinesShareATransaction(t *testing.T) {
	t.Parallel()
	ctx, client := redistest.Soon(t), redistest.Shared(t).Client(t)
	tr := rig.NewTransactor(t, client)
	share := func(tx *luatx.Tx) error {
		const each = 8
		errs, start, reader := make(chan error, 2*each), make(chan struct{}), tx.Read()
		for i := range each {
			read, written := rig.Key(t, tr, "a", fmt.Sprint("read-", i)), rig.Key(t, tr, "a", fmt.Sprint("written-", i))
			go func() { <-start; errs <- reader.Exists(ctx, read).Err() }()
			go func() { <-start; errs <- luatx.Queued(tx.Pipeline().Incr(ctx, written)) }()
		}
		close(start)
		var failed error
		for range 2 * each {
			failed = errors.Join(failed, <-errs)
		}
		return failed
	}
	for range 20 {
		_, err := tr.Transact(ctx, "a", share)
		assert.NoError(t, err, "Transact")
	}
}
