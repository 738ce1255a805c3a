package trigger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

var errAlways = errors.New("the downstream is broken")

// kinds are the two kinds of stream triggers.
var kinds = map[string]func(*trigger.Config){
	"group":    func(*trigger.Config) {},
	"no group": func(c *trigger.Config) { c.Group, c.LastID = "", "0" },
}

// everyKind runs a test for every kind of stream trigger on every server.
func everyKind(t *testing.T, test func(t *testing.T, client redis.UniversalClient, kind func(*trigger.Config))) {
	t.Helper()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) { test(t, client, kind) })
		})
	}
}

func TestFailingEntriesDoNotStarveTheOthers(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, client redis.UniversalClient, kind func(*trigger.Config)) {
		s, done := newStream(t, client), &effects{}
		for range 4 {
			s.addText("bad")
		}
		s.add(1, 100)
		cfg := s.config(func(_ context.Context, msg *message.RawMessage) error {
			data := text(t, msg)
			if data == "bad" {
				return message.RetryAfter(errAlways, 12*time.Second)
			}
			done.add(data)
			return nil
		})
		cfg.Concurrency = 4
		kind(&cfg)
		tr := begin(t, cfg)
		from := time.Now()
		redistest.Eventually(t, "all good entries to run, or 8 seconds", func() bool {
			return len(done.list()) == 100 || time.Since(from) > 8*time.Second
		})
		if n := len(done.list()); n != 100 {
			t.Fatalf("%d of 100 good entries ran behind four that fail; health %+v", n, tr.Health())
		}
	})
}

func TestRetriesAndNewEntriesTakeTurns(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, client redis.UniversalClient, kind func(*trigger.Config)) {
		s, done, failures := newStream(t, client), &effects{}, atomic.Int64{}
		for range 20 {
			s.addText("bad")
		}
		s.add(1, 20)
		cfg := s.config(func(_ context.Context, msg *message.RawMessage) error {
			data := text(t, msg)
			if data == "bad" {
				failures.Add(1)
				return message.RetryAfter(errAlways, time.Nanosecond)
			}
			done.add(data)
			return nil
		})
		cfg.MaxDeliveries = 1000
		kind(&cfg)
		begin(t, cfg)
		redistest.Eventually(t, "all good entries to run", func() bool { return len(done.list()) == 20 })
		if n := failures.Load(); n > 20+5*20 {
			t.Errorf("20 good entries ran between %d failures of 20 bad ones", n)
		}
	})
}

func TestTriggerWithoutGroupStopsReadingFarBehindAnOpenEntry(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Shared(t).Client(t), t.Context()
	s, healed, ran := newStream(t, client), atomic.Bool{}, atomic.Int64{}
	const bound, more = 10_000, 100
	for chunk := range slices.Chunk(numbers(1, bound+more), 1000) {
		pipe := client.Pipeline()
		for _, n := range chunk {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: s.key, Values: []any{"data", n}})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cfg := s.config(func(_ context.Context, msg *message.RawMessage) error {
		if text(t, msg) == "1" && !healed.Load() {
			return message.RetryAfter(errAlways, 500*time.Millisecond)
		}
		ran.Add(1)
		return nil
	})
	kinds["no group"](&cfg)
	cfg.MaxDeliveries = 1_000_000
	tr := begin(t, cfg)
	for n := int64(0); n < bound-1; n = ran.Load() {
		redistest.Eventually(t, "the next entry", func() bool { return ran.Load() > n })
	}
	failed := tr.Stats().Failed
	redistest.Eventually(t, "another failure", func() bool { return tr.Stats().Failed > failed })
	if n := ran.Load(); n != bound-1 {
		t.Errorf("%d entries ran behind one that does not succeed, want %d", n, bound-1)
	}
	healed.Store(true)
	redistest.Eventually(t, "the rest to run", func() bool { return ran.Load() == bound+more })
}

func TestPubSubTimestampIsTheTimeOfReceipt(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		channel, busy, free, stamps := redistest.Tag(t), make(chan struct{}, 1), make(chan struct{}), make(chan time.Time, 2)
		tr := begin(t, trigger.Config{
			Connector: trigger.Connector{Client: client}, Mode: trigger.ModePubSub, Channels: []string{channel},
			Run: func(_ context.Context, msg *message.RawMessage) error {
				busy <- struct{}{}
				<-free
				<-busy
				stamps <- payload(t, msg).Metadata.Timestamp
				return nil
			},
		})
		publish(t, client, channel, "1")
		redistest.Eventually(t, "the function to run", func() bool { return len(busy) == 1 })
		publish(t, client, channel, "2")
		published := time.Now()
		redistest.Eventually(t, "a second", func() bool { return time.Since(published) > time.Second })
		close(free)
		<-stamps
		if late := (<-stamps).Sub(published); late > 500*time.Millisecond {
			t.Errorf("the timestamp is %v after the message was published", late)
		}
		tr.stop()
	})
}

func TestStatsHaveRetriesAndTheOldestUnackedEntry(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, client redis.UniversalClient, kind func(*trigger.Config)) {
		s, free := newStream(t, client), make(chan struct{})
		age := time.Hour
		id := strconv.FormatInt(time.Now().Add(-age).UnixMilli(), 10) + "-0"
		redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key, ID: id, Values: []any{"data", "bad"}}).Err())
		s.add(1, 2)
		cfg := s.config(func(_ context.Context, msg *message.RawMessage) error {
			select {
			case <-free:
				return nil
			default:
			}
			if text(t, msg) == "bad" {
				return message.RetryAfter(errAlways, 300*time.Millisecond)
			}
			<-free
			return nil
		})
		cfg.Concurrency = 2
		kind(&cfg)
		tr := begin(t, cfg)
		redistest.Eventually(t, "two functions to run and one entry to wait", func() bool {
			stats := tr.Stats()
			return stats.InFlight == 2 && stats.Retrying == 1
		})
		if got := tr.Stats().OldestUnacked; got < age || got > age+time.Minute {
			t.Errorf("the oldest entry is %v old, want %v", got, age)
		}
		close(free)
		redistest.Eventually(t, "nothing to be left", func() bool {
			stats := tr.Stats()
			return stats.Acked == 3 && stats.InFlight == 0 && stats.Retrying == 0 && stats.OldestUnacked == 0
		})
	})
}

func TestObserverReceivesEveryResult(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, reported := newStream(t, client), &effects{}
		for _, data := range []string{"good", "flaky", "permanent", "stolen"} {
			s.addText(data)
		}
		flaky := true
		cfg := s.config(func(_ context.Context, msg *message.RawMessage) error {
			switch data := text(t, msg); {
			case data == "flaky" && flaky:
				flaky = false
				return errAlways
			case data == "permanent":
				return message.Permanent(errAlways)
			case data == "stolen":
				msg.Release()
				return errAlways
			}
			return nil
		})
		cfg.Ordered, cfg.Function = true, "observed"
		stolen := make(chan struct{})
		first := sync.OnceFunc(func() { close(stolen) })
		cfg.Observer = trigger.Observer{Executed: func(_ context.Context, e trigger.Executed) {
			if e.Function != "observed" || e.Transport != "redis.stream" || e.Delivery.Stream != s.key || e.Duration <= 0 {
				t.Errorf("%+v", e)
			}
			reported.add(fmt.Sprint(e.Delivery.Fields["data"], e.Delivery.Attempt, " ", e.Result, errors.Is(e.Err, errAlways)))
			if e.Result == trigger.Released {
				first()
				panic("an observer that panics")
			}
		}}
		tr := begin(t, cfg)
		<-stolen // it is delivered again: no other consumer has it
		tr.stop()
		want := []string{"good1 succeededfalse", "flaky1 failedtrue", "flaky2 succeededfalse", "permanent1 refusedtrue", "stolen1 releasedtrue"}
		if got := reported.list(); !slices.Equal(got[:len(want)], want) {
			t.Errorf("reported %q, want %q", got, want)
		}
	})
}
