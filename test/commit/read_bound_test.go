package commit_test

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// fill writes n elements to a hash, a set, a list, a sorted set and a stream, and 10 bytes for each to a string. It returns
// their keys.
func fill(ctx context.Context, t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, n int) map[string]string {
	t.Helper()
	keys := make(map[string]string)
	for _, kind := range []string{"hash", "set", "list", "zset", "log", "string"} {
		keys[kind] = rig.Key(t, tr, "a", kind)
	}
	pipe := client.Pipeline()
	for i := range n {
		name := strconv.Itoa(i)
		pipe.HSet(ctx, keys["hash"], "field:"+name, "value:"+name)
		pipe.SAdd(ctx, keys["set"], "member:"+name)
		pipe.RPush(ctx, keys["list"], "member:"+name)
		pipe.ZAdd(ctx, keys["zset"], redis.Z{Score: float64(i), Member: "member:" + name})
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: keys["log"], Values: []string{"f", "v"}})
	}
	pipe.Set(ctx, keys["string"], strings.Repeat("0123456789", n), 0)
	redistest.Must(t, assert.ErrOf(pipe.Exec(ctx)))
	return keys
}

// wholeReads returns the commands that read the whole keys of fill, by name.
func wholeReads(ctx context.Context, k map[string]string) map[string]func(redis.Cmdable) redis.Cmder {
	return map[string]func(redis.Cmdable) redis.Cmder{
		"HGETALL":  func(c redis.Cmdable) redis.Cmder { return c.HGetAll(ctx, k["hash"]) },
		"HKEYS":    func(c redis.Cmdable) redis.Cmder { return c.HKeys(ctx, k["hash"]) },
		"HVALS":    func(c redis.Cmdable) redis.Cmder { return c.HVals(ctx, k["hash"]) },
		"SMEMBERS": func(c redis.Cmdable) redis.Cmder { return c.SMembers(ctx, k["set"]) },
		"SUNION":   func(c redis.Cmdable) redis.Cmder { return c.SUnion(ctx, k["set"]) },
		"SDIFF":    func(c redis.Cmdable) redis.Cmder { return c.SDiff(ctx, k["set"]) },
		"LRANGE":   func(c redis.Cmdable) redis.Cmder { return c.LRange(ctx, k["list"], 0, -1) },
		"ZRANGE":   func(c redis.Cmdable) redis.Cmder { return c.ZRangeWithScores(ctx, k["zset"], 0, -1) },
		"ZRANGEBYSCORE": func(c redis.Cmdable) redis.Cmder {
			return c.ZRangeByScore(ctx, k["zset"], &redis.ZRangeBy{Min: "-inf", Max: "+inf"})
		},
		"XRANGE":          func(c redis.Cmdable) redis.Cmder { return c.XRange(ctx, k["log"], "-", "+") },
		"XREVRANGE COUNT": func(c redis.Cmdable) redis.Cmder { return c.XRevRangeN(ctx, k["log"], "+", "-", 10) },
		"GET":             func(c redis.Cmdable) redis.Cmder { return c.Get(ctx, k["string"]) },
		"GETRANGE":        func(c redis.Cmdable) redis.Cmder { return c.GetRange(ctx, k["string"], 0, -1) },
		"MGET":            func(c redis.Cmdable) redis.Cmder { return c.MGet(ctx, k["string"], k["list"]) },
	}
}

func TestGuardedReadBeyondGuardBytesReturnsErrTooLarge(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.GuardBytes = 2000 })
		k := fill(ctx, t, client, tr, 300)
		last := client.XRevRangeN(ctx, k["log"], "+", "-", 1).Val()
		small := map[string]func(redis.Cmdable) redis.Cmder{
			"HGET":          func(c redis.Cmdable) redis.Cmder { return c.HGet(ctx, k["hash"], "field:7") },
			"HLEN":          func(c redis.Cmdable) redis.Cmder { return c.HLen(ctx, k["hash"]) },
			"LRANGE of ten": func(c redis.Cmdable) redis.Cmder { return c.LRange(ctx, k["list"], -10, -1) },
			"LRANGE of the first ten": func(c redis.Cmdable) redis.Cmder {
				return c.LRange(ctx, k["list"], 0, -291)
			},
			"ZRANGE BYSCORE of none": func(c redis.Cmdable) redis.Cmder {
				return c.ZRangeArgs(ctx, redis.ZRangeArgs{Key: k["zset"], Start: 200, Stop: -1, ByScore: true})
			},
			"ZRANGE BYSCORE WITHSCORES of none": func(c redis.Cmdable) redis.Cmder {
				return c.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: k["zset"], Start: 200, Stop: -1, ByScore: true})
			},
			"ZRANGE of ten": func(c redis.Cmdable) redis.Cmder { return c.ZRange(ctx, k["zset"], 10, 19) },
			"ZRANGEBYSCORE 0-9": func(c redis.Cmdable) redis.Cmder {
				return c.ZRangeByScore(ctx, k["zset"], &redis.ZRangeBy{Min: "0", Max: "9"})
			},
			"ZRANGEBYSCORE LIMIT": func(c redis.Cmdable) redis.Cmder {
				return c.ZRangeByScore(ctx, k["zset"], &redis.ZRangeBy{Min: "-inf", Max: "+inf", Count: 10})
			},
			"ZRANGEBYSCORE WITHSCORES LIMIT": func(c redis.Cmdable) redis.Cmder {
				return c.ZRangeByScoreWithScores(ctx, k["zset"], &redis.ZRangeBy{Min: "-inf", Max: "+inf", Count: 10})
			},
			"ZREVRANGE of ten":     func(c redis.Cmdable) redis.Cmder { return c.ZRevRange(ctx, k["zset"], 0, 9) },
			"XREVRANGE COUNT":      func(c redis.Cmdable) redis.Cmder { return c.XRevRangeN(ctx, k["log"], "+", "-", 3) },
			"XRANGE from the last": func(c redis.Cmdable) redis.Cmder { return c.XRange(ctx, k["log"], last[0].ID, "+") },
			"XRANGE COUNT":         func(c redis.Cmdable) redis.Cmder { return c.XRangeN(ctx, k["log"], "-", "+", 3) },
			"GETRANGE":             func(c redis.Cmdable) redis.Cmder { return c.GetRange(ctx, k["string"], 0, 99) },
			"wrong type":           func(c redis.Cmdable) redis.Cmder { return c.HGetAll(ctx, k["list"]) },
		}
		for name, read := range wholeReads(ctx, k) {
			_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return read(tx.Read()).Err() })
			if !errors.Is(err, luatx.ErrTooLarge) || !strings.Contains(err.Error(), "Config.GuardBytes, 2000") || !strings.Contains(err.Error(), "procedure") {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, read := range small {
			_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				err := read(tx.Read()).Err()
				if err != nil && name != "wrong type" && !strings.Contains(err.Error(), "syntax error") { // BYSCORE needs Redis 6.2
					return err
				}
				return tx.Pipeline().Set(ctx, rig.Key(t, tr, "a", "done"), 1, 0).Err()
			})
			assert.NoError(t, err, "%s", name)
		}
	})
}

func TestGuardedReadOfExactlyGuardBytesIsAccepted(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		const element = 64 // the size of an element in addition to its bytes
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.GuardBytes = 10 * element })
		text, list, hash := rig.Key(t, tr, "a", "text"), rig.Key(t, tr, "a", "list"), rig.Key(t, tr, "a", "hash")
		shorter, none := rig.Key(t, tr, "a", "shorter"), rig.Key(t, tr, "a", "none")
		pairs := []any{"field--0", "value--0", "field--1", "value--1", "field--2", "value--2", "field--3"} // and a value
		for more, want := range []error{nil, luatx.ErrTooLarge} {
			redistest.Must(t, client.Set(ctx, text, strings.Repeat("x", 9*element+more), 0).Err(),
				client.Set(ctx, shorter, strings.Repeat("x", 8*element+more), 0).Err(),
				client.HSet(ctx, hash, append(slices.Clip(pairs), strings.Repeat("x", 8+more))...).Err(),
				client.Del(ctx, list).Err(), client.RPush(ctx, list, make([]any, 9+more)...).Err()) // the list itself counts as an element, too
			for name, read := range map[string]func(redis.Cmdable) redis.Cmder{
				"GET":     func(c redis.Cmdable) redis.Cmder { return c.Get(ctx, text) },
				"LRANGE":  func(c redis.Cmdable) redis.Cmder { return c.LRange(ctx, list, 0, -1) },
				"HGETALL": func(c redis.Cmdable) redis.Cmder { return c.HGetAll(ctx, hash) },
				"HGETALL of nothing": func(c redis.Cmdable) redis.Cmder {
					_ = c.Get(ctx, shorter)
					return c.HGetAll(ctx, none)
				},
			} {
				_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return read(tx.Read()).Err() })
				assert.Is(t, err, want, "%s with %d more than the limit", name, more)
			}
		}
	})
}

func TestGuardedReadIsNotTakenForLargerThanItsReply(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.GuardBytes = 64 + 6*72 })
		k := fill(ctx, t, client, tr, 6) // elements of at most 72 bytes each
		reads := map[string]func(redis.Cmdable) redis.Cmder{
			"HKEYS":              func(c redis.Cmdable) redis.Cmder { return c.HKeys(ctx, k["hash"]) },
			"HVALS":              func(c redis.Cmdable) redis.Cmder { return c.HVals(ctx, k["hash"]) },
			"SMEMBERS":           func(c redis.Cmdable) redis.Cmder { return c.SMembers(ctx, k["set"]) },
			"SUNION":             func(c redis.Cmdable) redis.Cmder { return c.SUnion(ctx, k["set"], k["set"]) },
			"LRANGE from before": func(c redis.Cmdable) redis.Cmder { return c.LRange(ctx, k["list"], -100, -1) },
			"LRANGE to behind":   func(c redis.Cmdable) redis.Cmder { return c.LRange(ctx, k["list"], 0, 100) },
			"ZRANGE to behind":   func(c redis.Cmdable) redis.Cmder { return c.ZRange(ctx, k["zset"], 0, 100) },
			"ZREVRANGE from before": func(c redis.Cmdable) redis.Cmder {
				return c.ZRevRange(ctx, k["zset"], -100, -1)
			},
		}
		for name, read := range reads {
			_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return read(tx.Read()).Err() })
			assert.NoError(t, err, "%s", name)
		}
	})
}

func TestGuardBytesBoundsAllReadsOfATransaction(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.GuardBytes = 2000 })
		list := fill(ctx, t, client, tr, 300)["list"]
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			for range 2 { // 10 elements of less than 80 bytes each
				assert.NoError(t, tx.Read().LRange(ctx, list, 0, 9).Err(), "within the limit")
			}
			_, err := tx.Read().Pipelined(ctx, func(p redis.Pipeliner) error {
				p.LLen(ctx, list)
				p.LRange(ctx, list, 0, 9)
				return nil
			})
			if !errors.Is(err, luatx.ErrTooLarge) || !strings.Contains(err.Error(), "LRANGE") {
				t.Errorf("the third read: %v", err)
			}
			return tx.Pipeline().RPush(ctx, rig.Key(t, tr, "a", "done"), 1).Err()
		})
		assert.NoError(t, err, "the reads within the limit do not commit")
	})
}

// meeting is a hook that holds back the replies of two scripts until both have arrived.
type meeting struct {
	came atomic.Int32
	both sync.WaitGroup
}

func (m *meeting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *meeting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *meeting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "evalsha" && m.came.Add(1) <= 2 {
			m.both.Done()
			m.both.Wait()
		}
		return err
	}
}

func TestReadsOfTwoGoroutinesTogetherBeyondGuardBytesReturnErrTooLarge(t *testing.T) {
	t.Parallel()
	ctx, client := redistest.Soon(t), redistest.Shared(t).Client(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.GuardBytes = 2000 })
	list := fill(ctx, t, client, tr, 300)["list"]
	read := func(tx *luatx.Tx, last int64) error {
		_, err := tx.Read().Pipelined(ctx, func(p redis.Pipeliner) error {
			p.LLen(ctx, list)
			p.LRange(ctx, list, 0, last)
			return nil
		})
		return err
	}
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return read(tx, 0) }) // loads the script
	redistest.Must(t, err)
	m := &meeting{}
	m.both.Add(2)
	client.AddHook(m)
	_, err = tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- read(tx, 14) }() // 15 elements of less than 80 bytes each
		}
		first, second := <-errs, <-errs
		if failed := cmp.Or(first, second); first != nil && second != nil || !errors.Is(failed, luatx.ErrTooLarge) || !strings.Contains(failed.Error(), "guarded LRANGE") {
			t.Errorf("%v and %v, want ErrTooLarge of one LRANGE", first, second)
		}
		return nil
	})
	assert.NoError(t, err, "the reads within the limit")
}

func TestGuardedReplyThatGrowsBeyondGuardBytesIsAConflict(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.GuardBytes, c.ConflictRetries = 2000, -1 })
		set := rig.Key(t, tr, "a", "set")
		for name, write := range map[string]bool{"commit": true, "verify": false} {
			client.Del(ctx, set)
			client.SAdd(ctx, set, "a")
			_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				if err := tx.Read().SMembers(ctx, set).Err(); err != nil {
					return err
				}
				fill(ctx, t, client, tr, 100)
				if write {
					tx.Pipeline().Set(ctx, rig.Key(t, tr, "a", "done"), 1, 0)
				}
				return nil
			})
			assert.Is(t, err, luatx.ErrConflict, "%s", name)
		}
	})
}

func TestGuardedReadOfKnownSizeIsRefusedBeforeItRuns(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	k := fill(ctx, t, client, tr, 20_000)
	whole := wholeReads(ctx, k)
	whole["ZRANGEBYSCORE"] = func(c redis.Cmdable) redis.Cmder {
		return c.ZRangeByScore(ctx, k["zset"], &redis.ZRangeBy{Min: "0", Max: "+inf"})
	}
	for _, command := range []string{"hgetall", "smembers", "lrange", "zrange", "zrangebyscore", "xrange"} {
		read := whole[strings.ToUpper(command)]
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return read(tx.Read()).Err() })
		assert.Is(t, err, luatx.ErrTooLarge, "%s", command)
		assert.Equal(t, rig.Calls(t, client, command), 0, "%s on the server", command)
	}
}

func TestGuardedReadWhoseElementsAloneWeighTooMuchIsRefusedBeforeItRuns(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, func(c *luatx.Config) { c.GuardBytes = 10*64 - 1 })
	text, list := rig.Key(t, tr, "a", "text"), rig.Key(t, tr, "a", "list")
	redistest.Must(t, client.Set(ctx, text, strings.Repeat("x", 9*64), 0).Err(), client.RPush(ctx, list, make([]any, 20)...).Err())
	for name, read := range map[string]func(redis.Cmdable) redis.Cmder{
		"GET":                     func(c redis.Cmdable) redis.Cmder { return c.Get(ctx, text) },
		"LRANGE of the first ten": func(c redis.Cmdable) redis.Cmder { return c.LRange(ctx, list, 0, 9) },
		"LRANGE of the last ten":  func(c redis.Cmdable) redis.Cmder { return c.LRange(ctx, list, -10, -1) },
		"LRANGE from before":      func(c redis.Cmdable) redis.Cmder { return c.LRange(ctx, list, -100, 9) },
		"LRANGE to behind":        func(c redis.Cmdable) redis.Cmder { return c.LRange(ctx, list, 10, 100) },
		"LRANGE to the tenth":     func(c redis.Cmdable) redis.Cmder { return c.LRange(ctx, list, 0, -11) },
	} {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return read(tx.Read()).Err() })
		assert.Is(t, err, luatx.ErrTooLarge, "%s", name)
		assert.Equal(t, rig.Calls(t, client, "get")+rig.Calls(t, client, "lrange"), 0, "%s: reads on the server", name)
	}
}

func TestGuardedReadWithInvalidBoundsReturnsTheErrorOfTheServer(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		k := fill(ctx, t, client, tr, 3)
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			for text, reads := range map[string][]redis.Cmder{
				"not an integer": {
					tx.Read().ZRangeArgs(ctx, redis.ZRangeArgs{Key: k["zset"], Start: 0, Stop: "x"}),
					tx.Read().ZRangeArgs(ctx, redis.ZRangeArgs{Key: k["zset"], Start: "x", Stop: 0}),
				},
				"Invalid stream ID": {tx.Read().XRange(ctx, k["log"], "[", "+"), tx.Read().XRange(ctx, k["log"], "-", "[")},
			} {
				for _, read := range reads {
					assert.ErrorContains(t, read.Err(), text, "%v", read.Args())
				}
			}
			return nil
		})
		assert.NoError(t, err, "the transaction")
	})
}

// cpuTime returns the CPU time of a server in seconds.
func cpuTime(ctx context.Context, t testing.TB, client *redis.Client) float64 {
	t.Helper()
	info, err := client.Info(ctx, "cpu").Result()
	redistest.Must(t, err)
	sum := 0.0
	for _, found := range regexp.MustCompile(`used_cpu_(?:user|sys):([\d.]+)`).FindAllStringSubmatch(info, -1) {
		seconds, err := strconv.ParseFloat(found[1], 64)
		redistest.Must(t, err)
		sum += seconds
	}
	return sum
}

func TestGuardedReadOfALargeHashCostsAFewTimesTheRead(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t, func(o *redis.Options) { o.ReadTimeout = time.Minute })
	ctx := t.Context() // without a deadline, because this is slow on a busy machine
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.GuardBytes, c.CommitTimeout = 1<<30, time.Minute })
	hash := rig.Key(t, tr, "a", "hash")
	const loop = "for i = 1, 10000 do redis.call('HSET', KEYS[1], ARGV[1] .. ':' .. i, 'value:' .. i) end"
	for n := range 5 {
		if err := client.Eval(ctx, loop, []string{hash}, n).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	cheapest := func(run func() error) float64 {
		best := 0.0
		for range 2 {
			before := cpuTime(ctx, t, client)
			redistest.Must(t, run())
			if used := cpuTime(ctx, t, client) - before; best == 0 || used < best {
				best = used
			}
		}
		return best
	}
	read := cheapest(func() error {
		return client.Eval(ctx, "return redis.call('HGETALL', KEYS[1])", []string{hash}).Err()
	})
	guarded := cheapest(func() error { // the read, and its repetition in the commit
		return assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return tx.Read().HGetAll(ctx, hash).Err() }))
	})
	t.Logf("a read costs %.3f s, guarded, twice, %.3f s", read, guarded)
	if guarded > 2*10*read { // expected are 3 to 5; comparing all pairs of fields would take thousands
		t.Errorf("a guarded read costs %.1f times the read", guarded/read/2)
	}
}
