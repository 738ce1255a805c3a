package expiry_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

// working runs a worker until the end of the test, or until the returned function is called.
func (f fixture) working(cfg expiry.WorkerConfig) (*expiry.Worker, func()) {
	f.t.Helper()
	if cfg.Event == nil {
		cfg.Event = expiredEvent
	}
	cfg.SweepInterval = cmp.Or(cfg.SweepInterval, 10*time.Millisecond)
	w, err := expiry.NewWorker(f.Store, cfg)
	redistest.Must(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(stop)
	return w, stop
}

func TestWorkerDecidesOnlyDueTimersOfEveryShardInBatches(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{})
		want := make(map[string]string)
		for i := range 50 {
			subject := fmt.Sprint("s", i)
			f.record(subject, past)
			want[subject] = "expired"
		}
		f.record("not yet", future)
		w, stop := f.working(expiry.WorkerConfig{BatchSize: 3})
		redistest.Eventually(t, "all that is due to be decided", func() bool { return w.Counts().Enqueued == 50 })
		f.record("later", past)
		want["later"] = "expired"
		redistest.Eventually(t, "a timer recorded later to be decided", func() bool { return w.Counts().Enqueued == 51 })
		stop()
		f.has(want)
		if c := w.Counts(); c != (expiry.Counts{Enqueued: 51}) {
			t.Errorf("%+v", c)
		}
	})
}

func TestConcurrentWorkersDecideEachTimerOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, redistest.Shared(t).Client(t), expiry.Config{})
	want := make(map[string]string)
	for i := range 300 {
		subject := fmt.Sprint("s", i)
		f.record(subject, past)
		want[subject] = "expired"
	}
	workers := make([]*expiry.Worker, 3)
	for i := range workers {
		workers[i], _ = f.working(expiry.WorkerConfig{BatchSize: 10})
	}
	redistest.Eventually(t, "all to be decided", func() bool {
		var n int64
		for _, w := range workers {
			n += w.Counts().Enqueued
		}
		return n == 300
	})
	f.has(want)
}

// TestWorkerSearchesAgainOnlyWhenATimerIsDue also records an earlier timer meanwhile.
func TestWorkerSearchesAgainOnlyWhenATimerIsDue(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	now := time.Now()
	server.SetTime(now)
	f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) { c.Keyspace, c.NoRegistration = luatx.Partitions(1), true })
	f.record("late", now.Add(time.Hour))
	var sweeps, finds atomic.Int64
	client.AddHook(watch{func(cmd redis.Cmder) {
		switch cmd.Name() {
		case "zrange":
			sweeps.Add(1)
		case "evalsha":
			finds.Add(1)
		}
	}})
	w, _ := f.working(expiry.WorkerConfig{SweepInterval: time.Millisecond})
	redistest.Eventually(t, "some sweeps", func() bool { return sweeps.Load() > 30 })
	if n := finds.Load(); n > 2 { // the first call loads the script
		t.Errorf("%d looks in %d sweeps, want one", n, sweeps.Load())
	}
	f.record("soon", now.Add(100*time.Millisecond))
	f.record("sooner", past)
	redistest.Eventually(t, "the sooner one to be decided", func() bool { return w.Counts().Enqueued == 1 })
	server.SetTime(now.Add(100 * time.Millisecond))
	redistest.Eventually(t, "the other to be decided", func() bool { return w.Counts().Enqueued == 2 })
}

// watch calls saw for each command of a client.
type watch struct{ saw func(redis.Cmder) }

func (w watch) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.saw(cmd)
		return next(ctx, cmd)
	}
}

func (w watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			w.saw(cmd)
		}
		return next(ctx, cmds)
	}
}

// TestTimersWhoseEventFailsStayOpenAndDoNotBlockOthers uses more than a batch of such timers, which are the oldest ones. They
// are counted and logged.
func TestTimersWhoseEventFailsStayOpenAndDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, redistest.Shared(t).Client(t), expiry.Config{}, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) })
	for i := range 7 {
		f.record(fmt.Sprint("bad", i), past)
	}
	f.record("good", past.Add(time.Hour))
	var said rig.Lines
	w, stop := f.working(expiry.WorkerConfig{
		BatchSize: 3,
		Logger:    slog.New(slog.NewTextHandler(&said, nil)),
		Event: func(_ context.Context, timer expiry.Timer) (*message.Message, error) {
			if strings.HasPrefix(timer.Subject, "bad") {
				return nil, errors.New("no such ticket")
			}
			return expired(timer.Subject), nil
		},
	})
	redistest.Eventually(t, "the good one to be decided", func() bool { return w.Counts().Enqueued == 1 })
	redistest.Eventually(t, "the others to be logged", func() bool {
		return strings.Contains(said.String(), "no such ticket") && strings.Contains(said.String(), "bad0")
	})
	stop()
	f.has(map[string]string{"good": "expired"})
	if left := f.due(10); len(left) != 7 || w.Counts().Failed < 7 {
		t.Errorf("%q are open, %+v", left, w.Counts())
	}
}

// TestTimerWithoutAMessageIsCancelledUnlessExtendedMeanwhile uses more than a batch of such timers, which must not block
// others.
func TestTimerWithoutAMessageIsCancelledUnlessExtendedMeanwhile(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1).WithPrefix(c.Namespace) })
		for i := range 7 {
			f.record(fmt.Sprint("nothing", i), past)
		}
		f.record("extended", past)
		f.record("something", past.Add(time.Hour))
		w, stop := f.working(expiry.WorkerConfig{
			BatchSize: 3,
			Event: func(ctx context.Context, timer expiry.Timer) (*message.Message, error) {
				switch timer.Subject {
				case "something":
					return expired(timer.Subject), nil
				case "extended":
					_, err := f.Extend(ctx, timer.Subject, future)
					return nil, err
				}
				return nil, nil
			},
		})
		redistest.Eventually(t, "all to be decided", func() bool {
			return w.Counts() == expiry.Counts{Enqueued: 1, Cancelled: 7}
		})
		stop()
		f.has(map[string]string{"something": "expired"})
		if ok, err := f.Cancel(redistest.Soon(t), "extended"); !ok || err != nil {
			t.Errorf("the extended timer is open: %t, %v", ok, err)
		}
	})
}

func TestWorkerReportsAFullOutboxAndContinuesWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	f := newFixture(t, redistest.Shared(t).Client(t), expiry.Config{}, func(c *luatx.Config) {
		c.Keyspace, c.OutboxCapacity = luatx.Partitions(1), 2
	})
	for _, subject := range []string{"a", "b", "c"} {
		f.record(subject, past)
	}
	var said rig.Lines
	w, _ := f.working(expiry.WorkerConfig{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	redistest.Eventually(t, "the outbox to be full", func() bool { return w.Counts().Full > 0 && strings.Contains(said.String(), "outbox is full") })
	if c := w.Counts(); c.Enqueued != 2 {
		t.Errorf("%+v", c)
	}
	entries := link.Of(f.tr).Scripts.Shard(f.tr.Keyspace().Slots()[0]).Key("entries")
	redistest.Must(t, redistest.Shared(t).Client(t).Del(redistest.Soon(t), entries).Err())
	redistest.Eventually(t, "the last one to be decided", func() bool { return w.Counts().Enqueued == 3 })
}

func TestFullShardDoesNotKeepOthersWaiting(t *testing.T) {
	t.Parallel()
	f := newFixture(t, redistest.Shared(t).Client(t), expiry.Config{}, func(c *luatx.Config) { c.OutboxCapacity = 1 })
	tags := f.tr.Keyspace().Tags()
	room := map[string]int{tags[0]: 2, tags[len(tags)-1]: 1} // timers that the first and the last shard still need
	for i := 0; room[tags[0]]+room[tags[len(tags)-1]] > 0; i++ {
		tag, err := f.tr.Keyspace().Tag(fmt.Sprint("s", i))
		redistest.Must(t, err)
		if room[tag] > 0 {
			f.record(fmt.Sprint("s", i), past)
			room[tag]--
		}
	}
	w, _ := f.working(expiry.WorkerConfig{Logger: slog.New(slog.DiscardHandler)})
	redistest.Eventually(t, "a timer of each shard to be decided", func() bool { return w.Counts().Enqueued == 2 && w.Counts().Full > 0 })
}

func TestWorkerCountsEachKindOfDecision(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		var keys luatx.Keyspace
		f := newFixture(t, client, expiry.Config{RevokedKey: func(subject string) (string, error) { return keys.Key(subject, "revoked") }},
			func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1).WithPrefix(c.Namespace) })
		keys = f.tr.Keyspace()
		ctx := redistest.Soon(t)
		for _, subject := range []string{"fires", "fired", "marked", "moved"} {
			f.record(subject, past)
		}
		f.decides("fired", past, expiry.Enqueued)
		redistest.Must(t, client.Del(ctx, link.Of(f.tr).Scripts.Shard(keys.Slots()[0]).Key("decided")).Err())
		f.record("fired", past)
		marker, err := keys.Key("marked", "revoked")
		redistest.Must(t, err)
		redistest.Must(t, client.Set(ctx, marker, 1, 0).Err())
		w, stop := f.working(expiry.WorkerConfig{Event: func(ctx context.Context, timer expiry.Timer) (*message.Message, error) {
			if timer.Subject == "moved" {
				f.extends("moved", future, true)
			}
			return expired(timer.Subject), nil
		}})
		redistest.Eventually(t, "nothing to be due", func() bool { return len(f.due(10)) == 0 })
		stop()
		if c := w.Counts(); c != (expiry.Counts{Enqueued: 1, Revoked: 1, AlreadyEnqueued: 1, NotDue: 1}) {
			t.Errorf("%+v", c)
		}
		f.has(map[string]string{"fires": "expired", "fired": "expired"})
		f.extends("moved", past, true)
	})
}

func TestDecisionWithALostReplyTakesEffectOnce(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	f := newFixture(t, redistest.Client(t, proxy.Addr()), expiry.Config{})
	for _, subject := range []string{"a", "b", "known", "known, too"} {
		f.record(subject, past)
	}
	f.decides("known", past, expiry.Enqueued) // loads the scripts
	f.revokes("known, too", true)
	proxy.DropReply(1, respproxy.Command("EVALSHA"))
	f.decides("a", past, expiry.AlreadyEnqueued)
	proxy.DropReply(1, respproxy.Command("EVALSHA"))
	f.revokes("b", true)
	f.has(map[string]string{"a": "expired", "b": "revoked", "known": "expired", "known, too": "revoked"})
}

func TestDecisionNotifiesTheRelayOfTheProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t, redistest.Shared(t).Client(t), expiry.Config{})
	var relay inline
	redistest.Must(t, link.Of(f.tr).Attach(&relay))
	f.record("a", past)
	f.record("b", past)
	f.decides("a", past, expiry.Enqueued)
	f.decides("a", past, expiry.AlreadyEnqueued)
	f.revokes("b", true)
	if want := []string{expiry.EventID("a", past), expiry.RevokedID("b")}; !slices.Equal(relay, want) {
		t.Errorf("the relay was notified of %q, want %q", relay, want)
	}
}

type inline []string

func (i *inline) Reserve() (time.Duration, bool) { return 0, false }
func (i *inline) Committed(_ int, events []shard.Event, _ bool) {
	for _, event := range events {
		*i = append(*i, event.ID)
	}
}

func TestSecondRunFailsAndRunEndsDuringAPause(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	f := newFixture(t, client, expiry.Config{})
	f.record("a", past)
	w, stop := f.working(expiry.WorkerConfig{SweepInterval: time.Hour})
	redistest.Eventually(t, "the worker to run", func() bool { return w.Counts().Enqueued == 1 })
	if err := w.Run(t.Context()); err == nil {
		t.Error("ran twice")
	}
	stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); err != nil {
		t.Errorf("after a stop: %v", err)
	}
}

func TestWorkerSweepsEveryShardOncePerInterval(t *testing.T) {
	t.Parallel()
	for partitions, between := range map[int]time.Duration{256: time.Second, 257: 30 * time.Second, 512: 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			defer client.Close()
			var at []time.Time
			keys, most := make(map[string]bool), 0
			client.AddHook(refusing{func(cmds []redis.Cmder) {
				at, most = append(at, time.Now()), max(most, len(cmds))
				for _, cmd := range cmds {
					keys[fmt.Sprint(cmd.Args()[1])] = true
				}
			}})
			f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) {
				c.Keyspace, c.NoRegistration = luatx.Partitions(partitions), true
			})
			var said rig.Lines
			w, err := expiry.NewWorker(f.Store, expiry.WorkerConfig{Event: expiredEvent, Logger: said.Logger()})
			redistest.Must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 40*between)
			defer cancel()
			redistest.Must(t, w.Run(ctx))
			if len(keys) != partitions {
				t.Errorf("%d of %d shards are looked at", len(keys), partitions)
			}
			if len(at) < 36 || len(at) > 45 {
				t.Errorf("%d partitions: %d looks in %v", partitions, len(at), 40*between)
			}
			if most > 256 {
				t.Errorf("%d partitions: one look at %d shards", partitions, most)
			}
			if n := said.Count("expiry: sweep failed"); n != len(at) {
				t.Errorf("%d of %d failures are logged", n, len(at))
			}
		})
	}
}

// refusing returns an error for every pipeline.
type refusing struct{ saw func([]redis.Cmder) }

func (r refusing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (r refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (r refusing) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		r.saw(cmds)
		return errors.New("refused")
	}
}
