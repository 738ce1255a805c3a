package stream_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

const (
	soakRate  = 2000 // messages per second
	soakBatch = 20
	soakNodes = 3
)

// soakFor returns the duration of TestSubscribersLoseNoMessageAndLeakNothing: LUATX_SOAK, or five minutes if LUATX_VERIFY is
// set. Otherwise, it skips the test.
func soakFor(t *testing.T) time.Duration {
	t.Helper()
	if text := os.Getenv("LUATX_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		redistest.Must(t, err)
		return d
	}
	if os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("takes five minutes: set LUATX_VERIFY=1, or LUATX_SOAK to a duration")
	}
	return 5 * time.Minute
}

// soak is a publisher and three consumers of one server, whose handlers fail. One consumer restarts all the time.
type soak struct {
	*fixture
	subs    []*stream.Subscriber
	sent    atomic.Int64
	refused [1 << 21]atomic.Bool // set by the first failure
	done    [1 << 21]atomic.Int32
}

func (s *soak) publish(t *testing.T, until time.Time) {
	t.Helper()
	pub := s.publisher(t, func(c *stream.PublisherConfig) { c.TrimAcked = true })
	tick := time.NewTicker(time.Second * soakBatch / soakRate)
	defer tick.Stop()
	for ; time.Now().Before(until) && s.sent.Load() < int64(len(s.done)-soakBatch); <-tick.C {
		batch := make([]*message.RawMessage, soakBatch)
		for i := range batch {
			batch[i] = order(strconv.FormatInt(s.sent.Add(1)-1, 10))
		}
		if errs := pub.Send(t.Context(), batch...); errs != nil {
			t.Errorf("publish: %v", errs)
			return
		}
	}
}

// consume handles messages until ctx ends.
func (s *soak) consume(ctx context.Context, t *testing.T, sub *stream.Subscriber, restart time.Duration) {
	t.Helper()
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, restart)
		ch, err := sub.Subscribe(once)
		if err != nil {
			t.Error(err)
			cancel()
			return
		}
		for msg := range ch {
			s.handle(msg)
		}
		cancel()
	}
}

// handle fails the first time for one message in twenty, and permanently for one in a thousand.
func (s *soak) handle(msg *message.RawMessage) {
	n, _ := strconv.Atoi(msg.ID())
	switch {
	case n%1000 == 999:
		s.done[n].Add(1)
		msg.Nack(message.Permanent(errBusy))
	case n%20 == 7 && s.refused[n].CompareAndSwap(false, true):
		msg.Nack(errBusy)
	default:
		s.done[n].Add(1)
		msg.Ack()
	}
}

// sample is the resources that the process and the server use.
type sample struct{ heap, goroutines, server int64 }

func (s *soak) sample(t *testing.T) sample {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	info, err := s.client.Info(t.Context(), "memory").Result()
	redistest.Must(t, err)
	_, used, _ := strings.Cut(info, "used_memory:")
	used, _, _ = strings.Cut(used, "\r\n")
	server, err := strconv.ParseInt(used, 10, 64)
	redistest.Must(t, err)
	backlog, err := s.client.MemoryUsage(t.Context(), s.key).Result() // grows while the consumers are behind
	if !errors.Is(err, redis.Nil) {
		redistest.Must(t, err)
	}
	return sample{int64(m.HeapAlloc), int64(runtime.NumGoroutine()), server - backlog}
}

func TestSubscribersLoseNoMessageAndLeakNothing(t *testing.T) {
	length := soakFor(t)
	f := newFixture(t, redistest.Single(t, redistest.Own()).Client(t))
	s := &soak{fixture: f}
	cfg := f.config()
	cfg.BlockTimeout, cfg.ClaimInterval, cfg.MaxIdleTime = 200*time.Millisecond, 500*time.Millisecond, 2*time.Second
	cfg.MaxDeliveries, cfg.BatchSize, cfg.MaxInFlight = 5, 50, 100
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	begun := time.Now()
	for i := range soakNodes {
		sub, err := stream.NewSubscriber(f.client, cfg)
		redistest.Must(t, err)
		s.subs = append(s.subs, sub)
		restart := 10 * time.Hour
		if i == 0 {
			restart = 3 * time.Second
		}
		running.Go(func() { s.consume(ctx, t, sub, restart) })
	}
	var publishing sync.WaitGroup
	publishing.Go(func() { s.publish(t, begun.Add(length)) })

	samples := s.watch(t, begun, length)
	publishing.Wait()
	f.wantNoBacklog(t)
	f.wantPending(t, 0)
	cancel()
	running.Wait()
	s.judge(t, samples)
}

// watch takes samples until the end, and discards the dead letters as an operator would.
func (s *soak) watch(t *testing.T, begun time.Time, length time.Duration) []sample {
	t.Helper()
	tick := time.NewTicker(length / 60)
	defer tick.Stop()
	var samples []sample
	for time.Since(begun) < length {
		<-tick.C
		redistest.Must(t, s.client.XTrimMaxLen(t.Context(), stream.DeadLetterKey(s.key), 100).Err())
		samples = append(samples, s.sample(t))
	}
	return samples
}

func (f *fixture) wantNoBacklog(t *testing.T) {
	t.Helper()
	last, err := f.client.XInfoStream(t.Context(), f.key).Result()
	redistest.Must(t, err)
	eventually(t, func() bool {
		groups, err := f.client.XInfoGroups(t.Context(), f.key).Result()
		redistest.Must(t, err)
		return groups[0].LastDeliveredID == last.LastGeneratedID
	}, func() string { return "entries are not read" })
}

// judge compares the second quarter with the last one. It leaves out the length of the stream, which depends on the speed
// of the machine.
func (s *soak) judge(t *testing.T, samples []sample) {
	t.Helper()
	median := func(from, to int, of func(sample) int64) int64 {
		var all []int64
		for _, x := range samples[len(samples)*from/4 : len(samples)*to/4] {
			all = append(all, of(x))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	for name, check := range map[string]struct {
		of    func(sample) int64
		slack int64
	}{
		"heap":        {func(x sample) int64 { return x.heap }, 1 << 20},
		"used_memory": {func(x sample) int64 { return x.server }, 1 << 20},
		"goroutines":  {func(x sample) int64 { return x.goroutines }, 3},
	} {
		early, late := median(1, 2, check.of), median(3, 4, check.of)
		t.Logf("%s: %d in the second quarter, %d in the last", name, early, late)
		if late > early+early/10+check.slack {
			t.Errorf("%s grows: %d in the second quarter, %d in the last", name, early, late)
		}
	}
	lost, twice := 0, 0
	for n := range s.sent.Load() {
		switch s.done[n].Load() {
		case 0:
			lost++
		case 1:
		default:
			twice++
		}
	}
	var stats stream.SubscriberStats
	for _, sub := range s.subs {
		got := sub.Stats()
		t.Logf("%+v", got)
		stats.DeadLettered += got.DeadLettered
		stats.Trimmed += got.Trimmed
	}
	t.Logf("%d sent, %d handled twice, %d entries left", s.sent.Load(), twice, len(s.entries(t)))
	if lost > 0 || stats.Trimmed > 0 || stats.DeadLettered != s.sent.Load()/1000 {
		t.Errorf("%d lost, %d trimmed before they were acked, %d of %d to the dead letters", lost, stats.Trimmed, stats.DeadLettered, s.sent.Load()/1000)
	}
	if s.sent.Load() < soakRate/10 {
		t.Errorf("%d sent", s.sent.Load())
	}
}
