package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

func TestClaimGivesBackEventsWhoseBodiesItCannotRead(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, y := redistest.Soon(t), newYard(t, client)
		redistest.Must(t, y.emitLarge("bad", "good"))
		body := link.Of(y.tr).Scripts.Shard(y.slot).BodyKey((keys{t, client, y.tr}).hash("entries")["bad"])
		redistest.Must(t, client.Rename(ctx, body, body+":kept").Err())
		redistest.Must(t, client.RPush(ctx, body, "no body").Err())
		work := outbox.Work{Attempts: 1, BackoffBase: time.Millisecond, Lease: time.Hour}
		batch, err := y.store.Claim(ctx, y.slot, work)
		redistest.Must(t, err)
		for _, e := range batch.Events {
			if unread := e.ID == "bad"; (e.Err != nil) != unread || (e.Message == nil) != unread {
				t.Errorf("claimed %s with %v, %v", e.ID, e.Message, e.Err)
			}
		}
		if c := y.counts(); len(batch.Events) != 2 || c.Pending != 2 || c.Leased != 1 {
			t.Errorf("%d events, %+v", len(batch.Events), c)
		}
		redistest.Must(t, client.Rename(ctx, body+":kept", body).Err())
		redistest.Eventually(t, "the event to be claimed at its first attempt", func() bool {
			batch, err := y.store.Claim(ctx, y.slot, work)
			redistest.Must(t, err)
			return len(batch.Events) == 1 && batch.Events[0].Err == nil && batch.Events[0].Attempt == 1
		})
	})
}

// leaves is a hook that calls leave when a script has replied.
type leaves struct{ leave func() }

func (leaves) DialHook(next redis.DialHook) redis.DialHook { return next }
func (leaves) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h leaves) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "evalsha" && err == nil {
			h.leave()
		}
		return err
	}
}

func TestClaimWhoseCallerLeavesBeforeTheBodiesAreReadCostsNoAttempt(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		redistest.Must(t, y.emitLarge("1", "2"))
		ctx, leave := context.WithCancel(redistest.Soon(t))
		defer leave()
		client.AddHook(leaves{leave})
		work := outbox.Work{Attempts: 1, Lease: time.Hour}
		batch, err := y.store.Claim(ctx, y.slot, work)
		redistest.Must(t, err)
		if c := y.counts(); len(batch.Events) != 2 || c.Pending != 2 || c.Leased != 0 || c.Parked != 0 {
			t.Errorf("%d events, %+v", len(batch.Events), c)
		}
	})
}

func TestErrorOfAnUnreadBodyCountsNoAttempt(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, y := redistest.Soon(t), newYard(t, client)
	redistest.Must(t, y.emitLarge("1"))
	down := &refusing{}
	client.AddHook(down)
	work := outbox.Work{Attempts: 1, BackoffBase: time.Minute, Lease: time.Hour}
	batch, err := y.store.Claim(ctx, y.slot, work)
	redistest.Must(t, err)
	down.over = true
	if c := y.counts(); len(batch.Events) != 1 || c.Leased != 1 {
		t.Fatalf("%d events, %+v", len(batch.Events), c)
	}
	done, err := y.store.Failed(ctx, batch, work, outbox.Fault{ID: "1", Err: message.Permanent(batch.Events[0].Err)})
	wantDone(t, done, err, 1)
	if c := y.counts(); c.Pending != 1 || c.Leased != 0 || c.Parked != 0 {
		t.Errorf("%+v", c)
	}
}

// refusing is a hook that refuses everything after the first reply of a script until it is over.
type refusing struct{ began, over bool }

func (*refusing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.began && !r.over {
			cmd.SetErr(rig.ErrRefused)
			return rig.ErrRefused
		}
		err := next(ctx, cmd)
		r.began = r.began || cmd.Name() == "evalsha" && err == nil
		return err
	}
}

func (r *refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if r.began && !r.over {
			return rig.ErrRefused
		}
		return next(ctx, cmds)
	}
}
