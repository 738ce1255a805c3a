package trigger_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

// transactional returns a function that counts each entry in the hash at counts, in a transaction that acknowledges it.
func transactional(t testing.TB, client redis.UniversalClient, counts string, before func(ctx context.Context, number string) error) trigger.Func {
	t.Helper()
	tr := rig.NewTransactor(t, client)
	engine := message.NewEngine(message.EngineConfig{})
	redistest.Must(t, engine.Router().Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{})))
	redistest.Must(t, engine.AddHandler("count", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[trigger.Payload]) ([]*message.Message, error) {
		number := *msg.Data.Body.Text
		if before != nil {
			if err := before(ctx, number); err != nil {
				return nil, err
			}
		}
		return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).HIncrBy(ctx, counts, number, 1))
	}, message.Named(trigger.TypeStream))))
	return func(ctx context.Context, msg *message.RawMessage) error {
		_, err := engine.Process(ctx, msg)
		return err
	}
}

// wantOnce checks that each number has taken effect once.
func wantOnce(t testing.TB, client redis.UniversalClient, counts string, numbers []string) {
	t.Helper()
	got, err := client.HGetAll(t.Context(), counts).Result()
	redistest.Must(t, err)
	for _, n := range numbers {
		if got[n] != "1" {
			t.Errorf("the effect of %s is there %q times", n, got[n])
		}
	}
	for n, times := range got {
		if times != "1" {
			t.Errorf("the effect of %s is there %s times", n, times)
		}
	}
}

func TestCommitOfAFunctionAcknowledgesItsEntryOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStream(t, client)
		s.add(1, 20)
		var failed atomic.Bool
		tr := begin(t, s.config(transactional(t, client, s.key+":counts", func(_ context.Context, number string) error {
			if number == "7" && failed.CompareAndSwap(false, true) {
				return errors.New("not yet")
			}
			return nil
		})))
		redistest.Eventually(t, "all to be acked", func() bool { return tr.Stats().Acked == 20 })
		wantOnce(t, client, s.key+":counts", numbers(1, 20))
		s.wantDone()
		if got := tr.Stats(); got.Failed != 1 || got.InFlight != 0 || got.Owed != 0 || got.Delivered != 21 {
			t.Errorf("%+v", got)
		}
	})
}

func TestErrorAfterACommitIsReportedAndTheEntryDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, reported := newStream(t, client), &effects{}
		s.add(1, 1)
		commit := transactional(t, client, s.key+":counts", nil)
		cfg := s.config(func(ctx context.Context, msg *message.RawMessage) error {
			return errors.Join(commit(ctx, msg), errAlways)
		})
		cfg.Observer = trigger.Observer{Executed: func(_ context.Context, e trigger.Executed) {
			reported.add(fmt.Sprint(e.Result, " ", errors.Is(e.Err, errAlways)))
		}}
		tr := begin(t, cfg)
		redistest.Eventually(t, "it to be acked", func() bool { return tr.Stats().Acked == 1 })
		wantEffects(t, reported, []string{"succeeded true"})
		wantOnce(t, client, s.key+":counts", numbers(1, 1))
		s.wantDone()
		if got := tr.Stats(); got.Failed != 0 || got.Delivered != 1 || !errors.Is(tr.Health().LastError, errAlways) {
			t.Errorf("%+v, %+v", got, tr.Health())
		}
	})
}

func TestEffectAndAckShareOneScriptEvenIfRepliesAreLost(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	client := redistest.Client(t, proxy.Addr())
	s := newStream(t, server.Client(t))
	s.add(1, 30)
	proxy.Next(5, everyOther(respproxy.Command("EVALSHA")), respproxy.CutReply())
	cfg := s.config(transactional(t, client, s.key+":counts", nil))
	cfg.Connector = trigger.Connector{Client: client}
	cfg.Concurrency = 3
	tr := begin(t, cfg)
	redistest.Eventually(t, "all to be acked", func() bool { return tr.Stats().Acked == 30 })
	wantOnce(t, s.client, s.key+":counts", numbers(1, 30))
	s.wantDone()
	if n := proxy.Count("XACK"); n != 0 {
		t.Errorf("%d acks beside the commits", n)
	}
}

func TestCommitOfAnEntryThatAnotherClaimedIsFencedWithoutAFailure(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, ctx := newStream(t, client), t.Context()
		s.add(1, 2)
		var entries []redis.XMessage
		entries, err := client.XRange(ctx, s.key, "-", "+").Result()
		redistest.Must(t, err)
		tr := begin(t, s.config(transactional(t, client, s.key+":counts", func(_ context.Context, number string) error {
			if number != "1" {
				return nil
			}
			other := group.Member{Client: client, Stream: s.key, Group: "g", Consumer: "other"}
			_, err := other.Claim(ctx, 0, []string{entries[0].ID})
			return err
		})))
		redistest.Eventually(t, "the second one to be acked", func() bool { return tr.Stats().Acked == 1 })
		wantOnce(t, client, s.key+":counts", []string{"2"})
		if n := client.HLen(ctx, s.key+":counts").Val(); n != 1 || s.pending() != 1 {
			t.Errorf("%d effects, %d pending", n, s.pending())
		}
		if got := tr.Stats(); got.Failed != 0 || got.InFlight != 0 || got.Delivered != 2 {
			t.Errorf("%+v", got)
		}
	})
}

func TestTransactionInAnotherSlotTakesEffectOnceAndIsAckedAfterTheCommit(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStream(t, client)
		s.add(1, 5)
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
			c.Aggregate = func(*message.Message) (string, error) { return "elsewhere", nil }
		})
		counts := rig.Key(t, tr, "elsewhere", "counts")
		router := message.NewRouter(message.PipeConfig{})
		redistest.Must(t, router.Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{})))
		redistest.Must(t, router.AddHandler("count", nil,
			message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[trigger.Payload]) ([]*message.Message, error) {
				return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).HIncrBy(ctx, counts, *msg.Data.Body.Text, 1))
			}, message.Named(trigger.TypeStream))))
		run := begin(t, s.config(func(ctx context.Context, msg *message.RawMessage) error {
			_, err := router.Process(ctx, message.Copy[[]byte, any](msg, msg.Data))
			return err
		}))
		redistest.Eventually(t, "all to be acked", func() bool { return run.Stats().Acked == 5 })
		wantOnce(t, client, counts, numbers(1, 5))
		s.wantDone()
	})
}

func TestConcurrentTriggersHaveEachEffectOnce(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := newStream(t, client)
	run := transactional(t, client, s.key+":counts", nil)
	var all []*started
	for range 2 {
		cfg := s.config(run)
		cfg.Concurrency, cfg.ClaimInterval, cfg.MaxIdleTime = 4, 10*time.Millisecond, 100*time.Millisecond
		all = append(all, begin(t, cfg))
	}
	const n = 500
	s.add(1, n)
	redistest.Eventually(t, "all to be acked", func() bool { return all[0].Stats().Acked+all[1].Stats().Acked >= n })
	wantOnce(t, client, s.key+":counts", numbers(1, n))
	s.wantDone()
	if t.Failed() {
		t.Logf("%+v %+v", all[0].Stats(), all[1].Stats())
	}
}
