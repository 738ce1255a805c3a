package trigger_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	streams "github.com/luatx/luatx/stream"
	"github.com/luatx/luatx/trigger"
)

func TestEntriesRunInOrderAndConsumerLeavesItsGroup(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, done := newStream(t, client), &effects{}
		s.add(1, 10)
		tr := begin(t, s.config(func(_ context.Context, msg *message.RawMessage) error {
			p := payload(t, msg)
			if p.Stream != s.key || p.ID != msg.ID() || msg.Source() != s.key || msg.Type() != trigger.TypeStream || p.Metadata.StreamID != p.ID {
				t.Errorf("message %v, payload %+v", msg.Attributes, p)
			}
			if at := time.Since(p.Metadata.Timestamp); at < -time.Minute || at > time.Minute {
				t.Errorf("added %v ago", at)
			}
			done.add(text(t, msg))
			return nil
		}))
		s.add(11, 20)
		wantEffects(t, done, numbers(1, 20))
		s.wantDone()
		consumers, err := client.XInfoConsumers(t.Context(), s.key, "g").Result()
		if err != nil || len(consumers) != 1 || len(consumers[0].Name) != len("f-")+36 || !strings.HasPrefix(consumers[0].Name, "f-") {
			t.Errorf("consumers %+v, %v", consumers, err)
		}
		tr.stop()
		if consumers, err := client.XInfoConsumers(t.Context(), s.key, "g").Result(); err != nil || len(consumers) != 0 {
			t.Errorf("consumers %+v are left, %v", consumers, err)
		}
		if got := tr.Stats(); got != (trigger.Stats{Acked: 20, Delivered: 20}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestFailedEntriesAreRetriedFirstAndPermanentOnesBecomeReadableDeadLetters(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, done, mended := newStream(t, client), &effects{}, atomic.Bool{}
		for _, data := range []string{"flaky", "bad", "permanent", "fine"} {
			s.addText(data)
		}
		s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key, Values: []any{"malformed", "\xff"}})
		cfg := s.config(func(_ context.Context, msg *message.RawMessage) error {
			data := text(t, msg)
			done.add(data)
			switch {
			case mended.Load():
			case data == "flaky" && len(done.list()) < 3, data == "bad":
				return errors.New("not yet")
			case data == "permanent":
				return message.Permanent(errors.New("never"))
			}
			return nil
		})
		cfg.MaxDeliveries, cfg.Ordered = 3, true
		tr := begin(t, cfg)
		wantEffects(t, done, []string{"flaky", "flaky", "flaky", "bad", "bad", "bad", "permanent", "fine"})
		s.wantDone()
		redistest.Eventually(t, "the malformed one to be counted", func() bool { return tr.Stats().DeadLettered == 3 })
		type dead struct {
			reason     string
			deliveries int64
		}
		var got []dead
		for letter, err := range streams.DeadLetters(t.Context(), client, streams.DeadLetterKey(s.key)) {
			if err != nil || letter.Stream != s.key || letter.Group != "g" || time.Since(letter.Last) > time.Minute || letter.Entry == "" {
				t.Errorf("%+v, %v", letter, err)
			}
			got = append(got, dead{letter.Reason, letter.Deliveries})
		}
		malformed := `build payload: field "malformed" is not UTF-8; put binary data into the field data`
		if want := []dead{{"not yet", 3}, {"never", 1}, {malformed, 1}}; !slices.Equal(got, want) {
			t.Errorf("dead letters %+v, want %+v", got, want)
		}
		mended.Store(true)
		if n, err := streams.PutBackAll(t.Context(), client, streams.DeadLetterKey(s.key)); n != 3 || err != nil {
			t.Errorf("put back %d, %v", n, err)
		}
		redistest.Eventually(t, "what was put back to run", func() bool { return slices.Equal(done.list()[8:], []string{"bad", "permanent"}) })
		redistest.Eventually(t, "the malformed one to be back", func() bool { return tr.Stats().DeadLettered == 4 })
	})
}

func TestEntriesAndConsumerOfADeadProcessAreTakenOver(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, done := newStream(t, client), &effects{}
		s.add(1, 40)
		ctx := t.Context()
		client.XGroupCreate(ctx, s.key, "g", "0")
		err := client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "gone", Streams: []string{s.key, ">"}, Count: 39}).Err()
		redistest.Must(t, err)
		cfg := s.config(done.of(t))
		cfg.ClaimInterval, cfg.MaxIdleTime = 10*time.Millisecond, 30*time.Millisecond
		begin(t, cfg)
		redistest.Eventually(t, "all to run", done.has(40))
		s.wantDone()
		if got := slices.DeleteFunc(done.list(), func(n string) bool { return n == "40" }); !slices.Equal(got, numbers(1, 39)) {
			t.Errorf("claimed %v", got)
		}
		if strings.HasSuffix(t.Name(), "/miniredis") { // whose consumers are never idle
			return
		}
		redistest.Eventually(t, "the consumer to be removed", func() bool {
			consumers, err := client.XInfoConsumers(ctx, s.key, "g").Result()
			return err == nil && len(consumers) == 1 && consumers[0].Name != "gone"
		})
	})
}

func TestSlowFunctionAndRetryKeepTheirEntries(t *testing.T) {
	t.Parallel()
	s, runs, free := newStream(t, redistest.Shared(t).Client(t)), &effects{}, make(chan struct{})
	config := func(name string) trigger.Config {
		cfg := s.config(func(ctx context.Context, msg *message.RawMessage) error {
			runs.add(name + text(t, msg))
			if text(t, msg) == "2" {
				return message.RetryAfter(errors.New("later"), time.Hour)
			}
			select {
			case <-free:
			case <-ctx.Done():
			}
			return nil
		})
		cfg.ClaimInterval, cfg.MaxIdleTime, cfg.Concurrency, cfg.ShutdownTimeout = 10*time.Millisecond, 200*time.Millisecond, 2, time.Millisecond
		return cfg
	}
	s.add(1, 2)
	begin(t, config("a"))
	redistest.Eventually(t, "both to run", runs.has(2))
	other := begin(t, config("b"))
	from := time.Now()
	redistest.Eventually(t, "five times MaxIdleTime", func() bool { return time.Since(from) > time.Second })
	if got := runs.list(); len(got) != 2 {
		t.Errorf("ran %v", got)
	}
	if other.Stats().Delivered != 0 {
		t.Errorf("%+v", other.Stats())
	}
	close(free)
	redistest.Eventually(t, "the slow one to be acked", func() bool { return s.pending() == 1 })
}

func TestStoppedTriggerOffersUnfinishedEntriesAtOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, runs := newStream(t, client), &effects{}
		s.add(1, 1)
		fails := s.config(func(_ context.Context, msg *message.RawMessage) error {
			runs.add(text(t, msg))
			return message.RetryAfter(errors.New("later"), time.Hour)
		})
		fails.MaxIdleTime = time.Hour
		tr := begin(t, fails)
		redistest.Eventually(t, "it to run", runs.has(1))
		tr.stop()
		works := s.config(runs.of(t))
		works.MaxIdleTime = time.Hour
		begin(t, works)
		wantEffects(t, runs, []string{"1", "1"})
		s.wantDone()
	})
}

func TestEntriesOfLostRepliesRunInOrder(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]respproxy.Action{
		"reply lost": respproxy.CutReply(), "reply torn": respproxy.SplitReply(), "request lost": respproxy.CutRequest(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			proxy := redistest.Proxy(t, server.Addr())
			s, done := newStream(t, server.Client(t)), &effects{}
			s.add(1, 30)
			proxy.Next(3, everyOther(respproxy.Command("XREADGROUP", "XACK", "EVALSHA")), fault)
			cfg := s.config(done.of(t))
			cfg.Connector, cfg.Ordered = trigger.Connector{URL: "redis://" + proxy.Addr()}, true
			begin(t, cfg)
			wantEffects(t, done, numbers(1, 30))
			s.wantDone()
		})
	}
}

func everyOther(match respproxy.Matcher) respproxy.Matcher {
	n := 0
	return func(cmd []string) bool {
		if match(cmd) {
			n++
		}
		return match(cmd) && n%2 == 0
	}
}

func TestEntryOfALateRequestRunsInOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	s, done, first := newStream(t, server.Client(t)), &effects{}, make(chan struct{})
	s.add(1, 1)
	cfg := s.config(func(_ context.Context, msg *message.RawMessage) error {
		done.add(text(t, msg))
		if text(t, msg) == "1" {
			<-first
		}
		return nil
	})
	cfg.Connector, cfg.Ordered = trigger.Connector{URL: "redis://" + proxy.Addr() + "?read_timeout=200ms&max_retries=-1"}, true
	begin(t, cfg)
	wantEffects(t, done, numbers(1, 1))
	late, next := proxy.Hold(respproxy.Command("XREADGROUP")), proxy.Hold(respproxy.Command("XREADGROUP"))
	close(first)
	redistest.Must(t, errors.Join(late.Wait(redistest.Soon(t)), next.Wait(redistest.Soon(t))))
	s.add(2, 3)
	late.Release()
	redistest.Eventually(t, "the late request to take entry 2 along", func() bool { return s.pending() == 1 })
	next.Release()
	wantEffects(t, done, numbers(1, 3))
	s.wantDone()
}

func TestTriggerContinuesWhenItsGroupIsDeleted(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, done := newStream(t, client), &effects{}
		s.add(1, 1)
		tr := begin(t, s.config(done.of(t)))
		wantEffects(t, done, numbers(1, 1))
		s.wantDone()
		redistest.Must(t, client.Del(t.Context(), s.key).Err())
		redistest.Eventually(t, "the group to be made again", func() bool { return tr.Stats().Reconnects > 0 && tr.Health().Ready })
		s.add(2, 3)
		wantEffects(t, done, numbers(1, 3))
	})
}

func TestEntryThatIsDeletedWhileItWaitsIsSkipped(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, done := newStream(t, client), &effects{}
		tr := begin(t, s.config(func(_ context.Context, msg *message.RawMessage) error {
			done.add(text(t, msg))
			if text(t, msg) == "1" {
				client.XDel(t.Context(), s.key, msg.ID())
				return errors.New("what is it about?")
			}
			return nil
		}))
		s.add(1, 2)
		wantEffects(t, done, numbers(1, 2))
		s.wantDone()
		redistest.Eventually(t, "a line in the log", func() bool {
			return strings.Contains(tr.log.String(), "entry was trimmed before it was acked")
		})
	})
}

func TestTriggerDoesNotReclaimEntriesThatAnotherClaimed(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"fails": errors.New("not yet"), "gives up": message.Permanent(errors.New("never"))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Shared(t).Client(t)
			s, done := newStream(t, client), &effects{}
			cfg := s.config(func(ctx context.Context, msg *message.RawMessage) error {
				done.add(text(t, msg))
				if text(t, msg) != "1" {
					return nil
				}
				steal := &redis.XClaimArgs{Stream: s.key, Group: "g", Consumer: "thief", Messages: []string{msg.ID()}}
				if err := client.XClaim(ctx, steal).Err(); err != nil {
					t.Error(err)
				}
				from := time.Now()
				redistest.Eventually(t, "some heartbeats", func() bool { return time.Since(from) > 200*time.Millisecond })
				return err
			})
			cfg.MaxIdleTime, cfg.ClaimInterval = 100*time.Millisecond, time.Hour
			begin(t, cfg)
			redistest.Eventually(t, "it to begin", func() bool { return client.XInfoGroups(t.Context(), s.key).Val() != nil })
			s.add(1, 2)
			wantEffects(t, done, numbers(1, 2))
			redistest.Eventually(t, "the other entry to be acked", func() bool { return s.pending() == 1 })
			pending, err := client.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: s.key, Group: "g", Start: "-", End: "+", Count: 10}).Result()
			if err != nil || pending[0].Consumer != "thief" || pending[0].RetryCount != 2 || pending[0].Idle < 200*time.Millisecond {
				t.Errorf("pending %+v, %v", pending, err)
			}
			if n := client.XLen(t.Context(), streams.DeadLetterKey(s.key)).Val(); n != 0 {
				t.Errorf("%d dead letters", n)
			}
		})
	}
}
