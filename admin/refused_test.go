package admin_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/repair"
	"github.com/luatx/luatx/stream"
)

// TestOperationFailsIfTheServerRejectsAnyOfItsCommands rejects each command of an operation, one at a time. The operation must fail.
func TestOperationFailsIfTheServerRejectsAnyOfItsCommands(t *testing.T) {
	t.Parallel()
	for name, act := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				g := newGround(t)
				g.refuser.Arm(n)
				err := act(redistest.Soon(t), g)
				refused := g.refuser.Disarm()
				if refused == "" {
					if err != nil {
						t.Errorf("no command was rejected, but the operation fails: %v", err)
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), rig.ErrRefused.Error()) {
					t.Errorf("command %d (%s) was rejected, but the error is %v", n, refused, err)
				}
			}
		})
	}
}

var operations = map[string]func(context.Context, *ground) error{
	"Transact": func(ctx context.Context, g *ground) error {
		_, err := g.tr.Transact(ctx, "a", rig.Incr)
		return err
	},
	"Transact with a read": func(ctx context.Context, g *ground) error {
		_, err := g.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			key, err := tx.Key("n")
			if err != nil {
				return err
			}
			return errors.Join(tx.Read().Get(ctx, key).Err(), rig.Incr(tx))
		})
		return err
	},
	"Enqueue": func(ctx context.Context, g *ground) error {
		_, err := g.tr.Enqueue(ctx, "a", luatx.Event{ID: "new", Body: []byte("{}")})
		return err
	},
	"Store.Counts":      func(ctx context.Context, g *ground) error { _, err := g.store.Counts(ctx); return err },
	"Store.Overview":    func(ctx context.Context, g *ground) error { _, err := g.store.Overview(ctx); return err },
	"Store.Oldest":      func(ctx context.Context, g *ground) error { _, err := g.store.Oldest(ctx); return err },
	"Store.FindPending": func(ctx context.Context, g *ground) error { _, err := g.store.FindPending(ctx, 10); return err },
	"Store.Show":        func(ctx context.Context, g *ground) error { _, err := g.store.Show(ctx, g.slot, "p1"); return err },
	"Store.Parked":      func(ctx context.Context, g *ground) error { return all(g.store.Parked(ctx, outbox.Filter{})) },
	"Store.Audit":       func(ctx context.Context, g *ground) error { return all(g.store.Audit(ctx, time.Time{})) },
	"Store.List": func(ctx context.Context, g *ground) (err error) {
		for _, state := range []outbox.State{outbox.Pending, outbox.Waiting, outbox.Sent, outbox.Parked} {
			err = errors.Join(err, all(g.store.List(ctx, state, outbox.ListOptions{})))
		}
		return err
	},
	"Store.Rearm": func(ctx context.Context, g *ground) error { _, err := g.store.Rearm(ctx, g.slot, "p1"); return err },
	"Store.Discard": func(ctx context.Context, g *ground) error {
		_, err := g.store.Discard(ctx, g.slot, "why", "p1")
		return err
	},
	"Store.Erase": func(ctx context.Context, g *ground) error {
		_, err := g.store.Erase(ctx, g.slot, "why", "p1")
		return err
	},
	"Store.Change": func(ctx context.Context, g *ground) error {
		_, err := g.store.Change(ctx, g.slot, outbox.Change{Act: outbox.ActPark, Reason: "why"}, "l2")
		return err
	},
	"Store.ChangeAll": func(ctx context.Context, g *ground) error {
		_, err := g.store.ChangeAll(ctx, outbox.Scheduled, outbox.Filter{}, outbox.Change{Act: outbox.ActRetry, Reason: "why"}, outbox.ChangeOptions{})
		return err
	},
	"Store.Cancel": func(ctx context.Context, g *ground) error { _, err := g.store.Cancel(ctx, "a", "later"); return err },
	"Store.Move": func(ctx context.Context, g *ground) error {
		_, err := g.store.Move(ctx, "a", "later", time.Now().Add(2*time.Hour))
		return err
	},
	"Store.RearmAll": func(ctx context.Context, g *ground) error {
		_, err := g.store.RearmAll(ctx, outbox.Filter{}, outbox.RearmOptions{})
		return err
	},
	"Store.Replay": func(ctx context.Context, g *ground) error {
		_, err := g.store.Replay(ctx, time.Now().Add(-time.Hour), outbox.Filter{}, outbox.ReplayOptions{})
		return err
	},
	"Store.Export": func(ctx context.Context, g *ground) error {
		_, err := g.store.Export(ctx, io.Discard, outbox.Filter{})
		return err
	},
	"Store.Import": func(ctx context.Context, g *ground) error {
		_, err := g.store.Import(ctx, bytes.NewReader(g.exported))
		return err
	},
	"timers.Record": func(ctx context.Context, g *ground) error { return g.timers.Record(ctx, "new", time.Now()) },
	"timers.Extend": func(ctx context.Context, g *ground) error {
		_, err := g.timers.Extend(ctx, "subject", time.Now().Add(time.Hour))
		return err
	},
	"timers.Cancel": func(ctx context.Context, g *ground) error { _, err := g.timers.Cancel(ctx, "subject"); return err },
	"timers.Revoke": func(ctx context.Context, g *ground) error {
		_, err := g.timers.Revoke(ctx, "subject", expired())
		return err
	},
	"timers.Due": func(ctx context.Context, g *ground) error { return all(g.timers.Due(ctx, 10)) },
	"timers.Decide": func(ctx context.Context, g *ground) error {
		_, err := g.timers.Decide(ctx, expiry.Timer{Subject: "subject", Due: g.due}, expired(), time.Time{})
		return err
	},
	"repair.Check":     func(ctx context.Context, g *ground) error { return all(g.repairs.Check(ctx)) },
	"repair.Fix":       func(ctx context.Context, g *ground) error { return all(g.repairs.Fix(ctx)) },
	"Operator.Pause":   func(ctx context.Context, g *ground) error { return g.operator.Pause(ctx, "bank", "why", time.Time{}) },
	"Operator.Resume":  func(ctx context.Context, g *ground) error { _, err := g.operator.Resume(ctx, "bank"); return err },
	"Operator.Paused":  func(ctx context.Context, g *ground) error { _, err := g.operator.Paused(ctx); return err },
	"Operator.Stats":   func(ctx context.Context, g *ground) error { _, err := g.operator.Stats(ctx); return err },
	"Operator.Blocked": func(ctx context.Context, g *ground) error { return all(g.operator.Blocked(ctx)) },
	"Operator.Find":    func(ctx context.Context, g *ground) error { return all(g.operator.Find(ctx, "p1")) },
	"Operator.Known":   func(ctx context.Context, g *ground) error { _, err := g.operator.Known(ctx, "a", g.id); return err },
	"Operator.Forget": func(ctx context.Context, g *ground) error {
		_, err := g.operator.Forget(ctx, "a", g.id, "why")
		return err
	},
	"Operator.Streams": func(ctx context.Context, g *ground) error { return all(g.operator.Streams(ctx, g.stream)) },
	"Operator.Drain":   func(ctx context.Context, g *ground) error { _, _, err := g.operator.Drain(ctx, g.stream); return err },
	"stream.TrimAcked": func(ctx context.Context, g *ground) error {
		_, err := stream.TrimAcked(ctx, g.client, g.stream, true)
		return err
	},
	"stream.DeadLetters": func(ctx context.Context, g *ground) error {
		return all(stream.DeadLetters(ctx, g.client, g.stream+":dead"))
	},
	"stream.PutBackAll": func(ctx context.Context, g *ground) error {
		_, err := stream.PutBackAll(ctx, g.client, g.stream+":dead")
		return err
	},
	"Publisher.Send": func(ctx context.Context, g *ground) error {
		p, err := stream.NewPublisher(g.client, stream.PublisherConfig{Stream: g.stream})
		m := message.NewRaw([]byte("x"), message.Attributes{"id": "1", "source": "/shop", "type": "sold"}, nil)
		return errors.Join(append(p.Send(ctx, m), err)...)
	},
	"Operator.Position": func(ctx context.Context, g *ground) error {
		_, err := g.operator.Position(ctx, g.stream, g.stream+":last")
		return err
	},
	"Operator.RecordRead": func(ctx context.Context, g *ground) error {
		return g.operator.RecordRead(ctx, "why", outbox.Event{Slot: g.slot, ID: "p1"})
	},
}

func all[T any](rows iter.Seq2[T, error]) (err error) {
	for _, e := range rows {
		err = errors.Join(err, e)
	}
	return err
}

// ground is a namespace with data in each state.
type ground struct {
	refuser  *rig.Refuser
	client   *redis.Client
	tr       *luatx.Transactor
	store    *outbox.Store
	timers   *expiry.Store
	repairs  *repair.Worker
	operator *admin.Operator
	id       luatx.MessageID
	slot     int
	stream   string
	due      time.Time
	exported []byte
}

func newGround(t *testing.T) *ground {
	g := &ground{id: luatx.MessageID{Scope: "transact", ID: "1"}, due: time.Now().Add(-time.Minute).Truncate(time.Millisecond)}
	g.client = redistest.Shared(t).Client(t)
	g.refuser = rig.Refuse(g.client)
	g.tr = rig.NewTransactor(t, g.client, func(c *luatx.Config) {
		c.Keyspace, c.NoWakeUps = luatx.Partitions(2).WithPrefix(c.Namespace), true
	})
	ctx := redistest.Soon(t)
	var err1, err2, err3, err4 error
	g.store = outbox.NewStore(g.tr).As("ann")
	g.timers, err1 = expiry.New(g.tr, expiry.Config{})
	g.repairs, err2 = repair.New(g.tr, repair.Config{})
	g.operator, err3 = admin.NewOperator(g.tr, admin.OperatorConfig{Client: g.client, Name: "ann"})
	g.slot, err4 = g.store.Slot("a")
	redistest.Must(t, err1, err2, err3, err4)

	_, err1 = g.tr.Transact(ctx, "a", rig.Incr, luatx.WithID(g.id.ID))
	admintest.Park(t, g.tr, "a", "timeout", "sold", "p1", "p2")
	body := []byte(`{"specversion":"1.0","type":"sold","source":"/shop","id":"x"}`)
	admintest.Block(t, g.tr, "a", "b", "b1", "b2")
	_, err2 = g.tr.Enqueue(ctx, "a", luatx.Event{ID: "s1", Body: body}, luatx.Event{ID: "l1", Body: body, Key: "k"}, luatx.Event{ID: "l2", Body: body, Key: "k"},
		luatx.Event{ID: "later", Body: body, At: time.Now().Add(time.Hour)})
	_, err3 = g.store.Sent(ctx, g.slot, outbox.Work{KeepSentBodies: true}, "s1")
	redistest.Must(t, err1, err2, err3, g.timers.Record(ctx, "subject", g.due), g.operator.Pause(ctx, "bank", "why", time.Time{}))
	var exported bytes.Buffer
	_, err1 = g.store.Export(ctx, &exported, outbox.Filter{})
	g.exported, g.stream = exported.Bytes(), rig.Key(t, g.tr, "a", "orders")
	err2 = g.client.XGroupCreateMkStream(ctx, g.stream, "g", "0").Err()
	err3 = g.client.XAdd(ctx, &redis.XAddArgs{Stream: g.stream, Values: []string{"data", "x"}}).Err()
	redistest.Must(t, err1, err2, err3)
	return g
}

func expired() *message.Message {
	return message.New(nil, message.Attributes{"type": "expired", "source": "/shop"}, nil)
}
