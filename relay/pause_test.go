package relay_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// holdsUp is a hook that stops the first settlement of a kind until it is opened.
type holdsUp struct {
	what          string
	once          sync.Once
	reached, open chan struct{}
}

func newHoldsUp(what string) *holdsUp {
	return &holdsUp{what: what, reached: make(chan struct{}), open: make(chan struct{})}
}

func (h *holdsUp) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *holdsUp) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any(h.what)) {
			h.once.Do(func() {
				close(h.reached)
				<-h.open
			})
		}
		return next(ctx, cmd)
	}
}

func (h *holdsUp) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestEventHeldAfterItsPauseHasEndedIsPublished checks an event whose relay knew the pause when it decided to hold the event, and
// knows its end when it does so.
func TestEventHeldAfterItsPauseHasEndedIsPublished(t *testing.T) {
	t.Parallel()
	ctx, client := t.Context(), redistest.Shared(t).Client(t)
	tr, out := newTransactor(t, client), newSink()
	ran, hook := countScripts(client, tr), newHoldsUp(settle.Hold)
	client.AddHook(hook)
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "alice"})
	redistest.Must(t, err)
	redistest.Must(t, op.Pause(ctx, "bank", "they move house", time.Time{}))
	start(t, tr, out, relay.Config{SweepInterval: 10 * time.Millisecond})
	redistest.Eventually(t, "the relay to know the pause", func() bool { return ran.of("pauses") > 0 })
	emitTo(t, tr, "a", "bank", "e")
	<-hook.reached
	_, err = op.Resume(ctx, "bank")
	redistest.Must(t, err)
	looks := ran.of("pauses")
	redistest.Eventually(t, "the relay to look twice", func() bool { return ran.of("pauses") > looks+1 })
	close(hook.open)
	redistest.Eventually(t, "the event to be published", func() bool { return counts(t, tr) == outbox.Counts{Sent: 1} })
	if n := out.count("e"); n != 1 {
		t.Errorf("published %d times", n)
	}
}

// TestRelayThatStartsAfterAPauseReleasesItsEvents checks it also if an operator has paused another destination meanwhile.
func TestRelayThatStartsAfterAPauseReleasesItsEvents(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, out := newTransactor(t, client), newSink()
		op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "alice"})
		redistest.Must(t, err)
		redistest.Must(t, op.Pause(ctx, "bank", "they move house", time.Time{}))
		stop := start(t, tr, out, relay.Config{SweepInterval: 10 * time.Millisecond})
		emitTo(t, tr, "a", "bank", "e")
		waitHeld(t, tr)
		stop()
		_, err = op.Resume(ctx, "bank")
		redistest.Must(t, err)
		redistest.Must(t, op.Pause(ctx, "shop", "they do, too", time.Time{}))
		start(t, tr, out, relay.Config{SweepInterval: 10 * time.Millisecond})
		redistest.Eventually(t, "the event to be published", func() bool { return out.count("e") == 1 })
	})
}

// fails is a hook that fails a script as long as it is broken.
type fails struct {
	sha    string
	broken atomic.Bool
}

func (f *fails) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *fails) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.broken.Load() && slices.Contains(cmd.Args(), any(f.sha)) {
			return errNo
		}
		return next(ctx, cmd)
	}
}

func (f *fails) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestHeldEventsAreReleasedLaterIfThatFailsAtTheEndOfTheirPause(t *testing.T) {
	t.Parallel()
	ctx, client := redistest.Soon(t), redistest.Shared(t).Client(t)
	tr, out := newTransactor(t, client), newSink()
	hook := &fails{sha: maps.Collect(link.Of(tr).Runner.SHAs())["unhold"]}
	client.AddHook(hook)
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "alice"})
	redistest.Must(t, err)
	redistest.Must(t, op.Pause(ctx, "bank", "they move house", time.Time{}))
	var log rig.Lines
	start(t, tr, out, relay.Config{SweepInterval: time.Hour, NoWakeUps: true, Logger: log.Logger()})
	emitTo(t, tr, "a", "bank", "e")
	waitHeld(t, tr)
	hook.broken.Store(true)
	_, err = op.Resume(ctx, "bank")
	redistest.Must(t, err)
	redistest.Eventually(t, "the release to fail", func() bool { return log.Count("releasing paused events failed") > 0 })
	hook.broken.Store(false)
	redistest.Eventually(t, "the event to be published", func() bool { return out.count("e") == 1 })
}

// waitHeld waits until an event is held for the pause of its destination.
func waitHeld(t testing.TB, tr *luatx.Transactor) {
	t.Helper()
	redistest.Eventually(t, "the event to be held", func() bool {
		for e, err := range outbox.NewStore(tr).List(t.Context(), outbox.Pending, outbox.ListOptions{}) {
			return err == nil && time.Until(e.At) > time.Minute
		}
		return false
	})
}
