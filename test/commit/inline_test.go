package commit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
)

// ledger is an inline relay that counts its reserved slots and the released ones, and records the ids of their events.
type ledger struct {
	mu             sync.Mutex
	lent, returned int
	events         string
}

func (l *ledger) Reserve() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lent++
	return time.Minute, true
}

func (l *ledger) Committed(_ int, events []shard.Event, reserved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, event := range events {
		l.events += event.ID
	}
	if reserved {
		l.returned++
	}
}

func TestEveryOutcomeReturnsTheReservedInlineSlot(t *testing.T) {
	t.Parallel()
	emit := func(tx *luatx.Tx) error { return tx.Emit(luatx.Event{ID: "e", Body: []byte("{}")}) }
	call := func(name string) func(*luatx.Tx) error {
		return func(tx *luatx.Tx) error {
			k, err := tx.Key("k")
			tx.Call(name, []string{k})
			return err
		}
	}
	transact := func(what func(*luatx.Tx) error, options ...luatx.Option) func(context.Context, *luatx.Transactor, string) error {
		return func(ctx context.Context, tr *luatx.Transactor, aggregate string) error {
			return assert.ErrOf(tr.Transact(ctx, aggregate, what, options...))
		}
	}
	first := func(action respproxy.Action) func() respproxy.Action {
		var done atomic.Bool
		return func() respproxy.Action {
			if done.Swap(true) {
				return respproxy.Pass()
			}
			return action
		}
	}
	cut := first(respproxy.CutReply())
	for name, c := range map[string]struct {
		run    func(ctx context.Context, tr *luatx.Transactor, aggregate string) error
		server func() respproxy.Action // action on each script; nil to let it pass
		fails  bool
		slots  int    // number of reserved slots
		events string // ids of the events handed over
	}{
		"committed":                  {run: transact(emit), slots: 1, events: "e"},
		"committed without events":   {run: transact(call("quiet")), slots: 1},
		"committed events of a call": {run: transact(call("loud")), slots: 1, events: "e"},
		"committed events of both": {run: transact(func(tx *luatx.Tx) error {
			return errors.Join(call("more")(tx), emit(tx))
		}), slots: 1, events: "ef"},
		"aborted":                     {run: transact(call("abort")), fails: true, slots: 1},
		"rejected":                    {run: transact(call("reject")), fails: true, slots: 1},
		"duplicate":                   {run: duplicated(emit), slots: 2, events: "e"},
		"conflict, run again thrice":  {run: conflicting(emit), fails: true, slots: 4},
		"event with another body":     {run: eventTwice, fails: true, slots: 2, events: "e"},
		"committed, the reply lost":   {run: transact(emit), server: first(respproxy.CutReply()), slots: 1, events: "e"},
		"duplicate, the reply lost":   {run: duplicated(emit), server: first(respproxy.CutReply()), slots: 2, events: "e"},
		"the request lost":            {run: transact(emit), server: first(respproxy.CutRequest()), slots: 1, events: "e"},
		"a batch with each of a kind": {run: mixedBatch(emit, call("abort")), slots: 4, events: "e"},
		"a command fails": {run: transact(func(tx *luatx.Tx) error {
			k, err := tx.Key("k")
			tx.Pipeline().Set(context.Background(), k, "text", 0)
			tx.Pipeline().HSet(context.Background(), k, "f", "v")
			return errors.Join(err, emit(tx))
		}), fails: true, slots: 1},
		"no room": {run: transact(func(tx *luatx.Tx) error {
			var errs []error
			for range 11 {
				errs = append(errs, tx.Emit(luatx.Event{Body: []byte("{}")}))
			}
			return errors.Join(errs...)
		}), fails: true, slots: 1},
		"the caller left before": {run: func(ctx context.Context, tr *luatx.Transactor, aggregate string) error {
			ctx, leave := context.WithCancel(ctx)
			return transact(func(tx *luatx.Tx) error {
				leave()
				return emit(tx)
			})(ctx, tr, aggregate)
		}, fails: true, slots: 1},
		"the outcome unknown": {run: func(ctx context.Context, tr *luatx.Transactor, aggregate string) error {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			return transact(emit)(ctx, tr, aggregate)
		}, server: func() respproxy.Action {
			if action := cut(); action != respproxy.Pass() {
				return action
			}
			return respproxy.CutRequest()
		}, fails: true, slots: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
			ctx := redistest.Soon(t)
			tr := rig.NewTransactor(t, redistest.Client(t, proxy.Addr(), rig.ShortReads), func(c *luatx.Config) { c.OutboxCapacity, c.ConflictRetries = 10, 3 }, withProcedures(
				luatx.Procedure{Name: "quiet", Keys: []string{"k"}, Source: "redis.call('SET', k, 1)"},
				luatx.Procedure{Name: "loud", Keys: []string{"k"}, Source: "emit('{}', 'e')"},
				luatx.Procedure{Name: "more", Keys: []string{"k"}, Source: "emit('{}', 'f')"},
				luatx.Procedure{Name: "abort", Keys: []string{"k"}, Source: "emit('{}', 'e') abort('later')"},
				luatx.Procedure{Name: "reject", Keys: []string{"k"}, Source: "emit('{}', 'e') reject('never')"},
			))
			rig.Warm(t, tr)
			var slots ledger
			redistest.Must(t, link.Of(tr).Attach(&slots))
			proxy.On(func(cmd []string) respproxy.Action {
				if c.server == nil || !strings.EqualFold(cmd[0], "evalsha") {
					return respproxy.Pass()
				}
				return c.server()
			})
			if err := c.run(ctx, tr, "a"); (err != nil) != c.fails {
				t.Errorf("error %v", err)
			}
			slots.mu.Lock()
			defer slots.mu.Unlock()
			if slots.lent != c.slots || slots.returned != c.slots || slots.events != c.events {
				t.Errorf("%d slots lent, %d returned with events %q, want %d and events %q", slots.lent, slots.returned, slots.events, c.slots, c.events)
			}
		})
	}
}

// crowdedRelay is an inline relay without a free slot.
type crowdedRelay struct{}

func (crowdedRelay) Reserve() (time.Duration, bool)     { return 0, false }
func (crowdedRelay) Committed(int, []shard.Event, bool) {}

func TestEventThatGotNoInlineSlotWakesOtherRelays(t *testing.T) {
	t.Parallel()
	proxy, client, _ := rig.Proxied(t)
	tr := rig.NewTransactor(t, client)
	redistest.Must(t, link.Of(tr).Attach(crowdedRelay{}))
	redistest.Must(t, emitAll(t, tr, "a", luatx.Event{Body: []byte("{}")}))
	redistest.Eventually(t, "a wake-up", func() bool { return proxy.Count("SPUBLISH")+proxy.Count("PUBLISH") > 0 })
}

// fakeRelay is an inline relay with or without a free slot. It records the ids of the committed events that it gets.
type fakeRelay struct {
	free      bool
	committed string
}

func (c *fakeRelay) Reserve() (time.Duration, bool) { return time.Hour, c.free }

func (c *fakeRelay) Committed(_ int, events []shard.Event, _ bool) {
	for _, event := range events {
		c.committed += event.ID
	}
}

// wakeUps is a hook that records the slots whose relays are woken.
type wakeUps struct {
	mu    sync.Mutex
	slots []string
}

func (*wakeUps) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*wakeUps) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (w *wakeUps) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.mu.Lock()
		for _, cmd := range cmds {
			if strings.HasSuffix(cmd.Name(), "publish") {
				w.slots = append(w.slots, fmt.Sprint(cmd.Args()[2]))
			}
		}
		w.mu.Unlock()
		return next(ctx, cmds)
	}
}

func (w *wakeUps) of(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.slots, fmt.Sprint(n))
}

func TestCommitWakesOtherRelaysIfNoneOfItsProcessHasItsEvents(t *testing.T) {
	t.Parallel()
	home := slot.OfTag("a")
	plain, ordered := luatx.Event{ID: "e", Body: []byte("{}")}, luatx.Event{ID: "e", Body: []byte("{}"), Key: "k"}
	for name, c := range map[string]struct {
		relay  *fakeRelay
		event  luatx.Event
		wakes  bool
		leased bool // to the relay of this process
	}{
		"plain, no relay":           {nil, plain, true, false},
		"ordered, no relay":         {nil, ordered, true, false},
		"plain, a relay":            {&fakeRelay{free: true}, plain, false, true},
		"ordered, a relay":          {&fakeRelay{free: true}, ordered, false, false},
		"plain, a crowded relay":    {&fakeRelay{}, plain, true, false},
		"ordered, a crowded relay":  {&fakeRelay{}, ordered, false, false},
		"nothing new, but no relay": {nil, luatx.Event{}, false, false},
	} {
		_, client := redistest.Mini(t)
		tr, ctx := rig.NewTransactor(t, client), redistest.Soon(t)
		var woken wakeUps
		client.AddHook(&woken)
		if c.relay != nil {
			redistest.Must(t, link.Of(tr).Attach(c.relay))
		}
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			if c.event.ID == "" {
				return rig.Incr(tx)
			}
			return tx.Emit(c.event)
		})
		redistest.Must(t, err)
		next := home ^ 1 // of the same channel
		link.Of(tr).Wake(next)
		redistest.Eventually(t, "the next wake-up", func() bool { return woken.of(next) })
		assert.Equal(t, woken.of(home), c.wakes, "%s: a wake-up", name)
		if c.relay != nil {
			assert.Equal(t, c.relay.committed, c.event.ID, "%s: the events that the relay gets", name)
		}
		events, err := link.Of(tr).Scripts.Claim(ctx, shardOf(tr), shard.Claiming{Limit: 10, Lease: time.Hour, Attempts: 10})
		redistest.Must(t, err)
		assert.Equal(t, len(events.Events) == 0, c.leased || c.event.ID == "", "%s: no event for other relays", name)
	}
}

// keeper is an inline relay that keeps the events of each commit.
type keeper struct{ events []shard.Event }

func (k *keeper) Reserve() (time.Duration, bool) { return time.Minute, true }

func (k *keeper) Committed(_ int, events []shard.Event, _ bool) {
	k.events = append(k.events, events...)
}

func TestLaterEventsDoNotChangeThoseThatTheRelayHas(t *testing.T) {
	t.Parallel()
	tr := rig.NewTransactor(t, redistest.Shared(t).Client(t))
	var relay keeper
	redistest.Must(t, link.Of(tr).Attach(&relay))
	data := func(i int) string { return strings.Repeat(fmt.Sprint(i), 20_000) }
	for i := range 5 {
		redistest.Must(t, assert.ErrOf(tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			return tx.Emit(luatx.Event{Data: data(i)})
		})))
	}
	assert.Equal(t, len(relay.events), 5, "events")
	for i, event := range relay.events {
		if !strings.Contains(string(event.Body), data(i)) {
			t.Errorf("event %d has become %.200s", i, event.Body)
		}
	}
}

// duplicated commits one id in two calls.
func duplicated(what func(*luatx.Tx) error) func(context.Context, *luatx.Transactor, string) error {
	return func(ctx context.Context, tr *luatx.Transactor, aggregate string) error {
		for range 2 {
			if _, err := tr.Transact(ctx, aggregate, what, luatx.WithID("x")); err != nil {
				return err
			}
		}
		return nil
	}
}

// conflicting changes a key that the transaction has read, in each run of its function.
func conflicting(what func(*luatx.Tx) error) func(context.Context, *luatx.Transactor, string) error {
	return func(ctx context.Context, tr *luatx.Transactor, aggregate string) error {
		return assert.ErrOf(tr.Transact(ctx, aggregate, func(tx *luatx.Tx) error {
			k, err := tx.Key("k")
			if err != nil {
				return err
			}
			if err := tx.Read().Get(ctx, k).Err(); err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			_, err = tr.Transact(ctx, aggregate, func(other *luatx.Tx) error { // without an event, so it takes no slot
				return luatx.Queued(other.Pipeline().Incr(ctx, k))
			})
			return errors.Join(err, what(tx))
		}))
	}
}

// eventTwice emits two events with the same id.
func eventTwice(ctx context.Context, tr *luatx.Transactor, aggregate string) error {
	var errs []error
	for _, body := range []string{`{"n":1}`, `{"n":2}`} {
		_, err := tr.Transact(ctx, aggregate, func(tx *luatx.Tx) error { return tx.Emit(luatx.Event{ID: "e", Body: []byte(body)}) })
		errs = append(errs, err)
	}
	return errs[1]
}

// mixedBatch commits an id, its duplicate, an aborted transaction, and one without an event of its own.
func mixedBatch(emit, abort func(*luatx.Tx) error) func(context.Context, *luatx.Transactor, string) error {
	return func(ctx context.Context, tr *luatx.Transactor, aggregate string) error {
		tr.TransactBatch(ctx, []luatx.BatchItem{
			{Aggregate: aggregate, Func: emit, Options: []luatx.Option{luatx.WithID("x")}},
			{Aggregate: aggregate, Func: emit, Options: []luatx.Option{luatx.WithID("x")}},
			{Aggregate: aggregate, Func: abort},
			{Aggregate: aggregate, Func: func(tx *luatx.Tx) error {
				k, err := tx.Key("k")
				tx.Call("quiet", []string{k})
				return err
			}},
		})
		return nil
	}
}
