package commit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

// observed records the notifications of an Observer.
type observed struct {
	mu  sync.Mutex
	all []luatx.Commit
}

func (o *observed) observer() luatx.Observer {
	return luatx.Observer{Committed: func(_ context.Context, c luatx.Commit) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, c)
	}}
}

// one returns the only Commit since the last call.
func (o *observed) one(t *testing.T) luatx.Commit {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) != 1 {
		t.Fatalf("notified of %d commits, want 1: %+v", len(o.all), o.all)
	}
	c := o.all[0]
	o.all = nil
	return c
}

func TestObserverReceivesCommits(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		seen := &observed{}
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Observer = seen.observer() })
		ctx, before := t.Context(), time.Now()
		set := func(tx *luatx.Tx) error {
			k, err := tx.Key("k")
			if err != nil {
				return err
			}
			tx.Pipeline().Set(ctx, k, "v", 0)
			return tx.Emit(luatx.Event{Body: []byte("{}")})
		}
		_, err := tr.Transact(ctx, "a", set, luatx.WithID("1"))
		redistest.Must(t, err)
		c := seen.one(t)
		if c.Namespace != tr.Config().Namespace || c.Commands != 1 || c.Events != 1 || c.Attempts != 1 || c.Batch != 1 ||
			c.Result.Outcome != luatx.Committed || c.Err != nil || c.Began.Before(before) || c.Duration <= 0 || c.Acknowledged {
			t.Errorf("committed: %+v", c)
		}
		_, err = tr.Transact(ctx, "a", set, luatx.WithID("1"))
		redistest.Must(t, err)
		assert.Equal(t, seen.one(t).Outcome(), "duplicate", "the outcome")
		_, err = tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			k, _ := tx.Key("k")
			tx.Pipeline().HSet(ctx, k, "f", "v") // the key holds a string
			return nil
		})
		if c := seen.one(t); err == nil || !errors.Is(c.Err, err) || c.Outcome() != "failed" || c.Result != (luatx.Result{}) {
			t.Errorf("failed with %v: %+v", err, c)
		}
		_, err = tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			tx.Pipeline().Set(ctx, rig.Key(t, tr, "another", "k"), "v", 0)
			return nil
		})
		if c := seen.one(t); !errors.Is(err, luatx.ErrCrossSlot) || !errors.Is(c.Err, luatx.ErrCrossSlot) || c.Attempts != 0 || c.Outcome() != "refused" {
			t.Errorf("refused with %v: %+v", err, c)
		}
		_, err = tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil })
		redistest.Must(t, err)
		if len(seen.all) > 0 {
			t.Errorf("notified of a transaction without anything to commit: %+v", seen.all)
		}
	})
}

func TestObserverReceivesEachTransactionOfABatchAndItsSize(t *testing.T) {
	t.Parallel()
	seen := &observed{}
	tr := rig.NewTransactor(t, redistest.Shared(t).Client(t), func(c *luatx.Config) { c.Observer = seen.observer() })
	items := make([]luatx.BatchItem, 5)
	for i := range items {
		items[i] = luatx.BatchItem{Aggregate: "a", Func: rig.Incr}
	}
	for _, r := range tr.TransactBatch(t.Context(), items) {
		redistest.Must(t, r.Err)
	}
	if len(seen.all) != len(items) {
		t.Fatalf("notified of %d commits", len(seen.all))
	}
	for _, c := range seen.all {
		if c.Batch != len(items) || c.Attempts != 1 {
			t.Errorf("%+v", c)
		}
	}
}

func TestObserverCountsEmittedEventsAndSeesTheAcknowledgement(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		seen := &observed{}
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Observer = seen.observer() },
			withProcedures(luatx.Procedure{Name: "emits", Source: "for i = 1, 2 do emit{type = 't', source = '/s'} end"}))
		in, elsewhere := rig.NewInput(t, client, rig.Key(t, tr, "a", "in")), rig.NewInput(t, client, rig.Key(t, tr, "b", "in"))
		r := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
			tx, _ := luatx.TxFromContext(ctx)
			return nil, errors.Join(luatx.Queued(tx.Call("emits", nil)), rig.Emit(tx))
		})
		for _, c := range []struct {
			from     rig.Input
			id, word string
			events   int
			acked    bool
		}{
			{in, "1", "committed", 3, true},
			{in, "1", "duplicate", 1, true}, // the procedure has not run
			{elsewhere, "2", "committed", 3, false},
		} {
			redistest.Must(t, assert.ErrOf(r.Process(redistest.Soon(t), c.from.Deliver("c", rig.Order(c.id)))))
			if got := seen.one(t); got.Outcome() != c.word || got.Events != c.events || got.Acknowledged != c.acked {
				t.Errorf("message %s: %+v, want %+v", c.id, got, c)
			}
		}
	})
}

func TestObserverHasTheHandlersContextAndItsPanicChangesNothing(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var ids []string
	client := redistest.Shared(t).Client(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Observer = luatx.Observer{Committed: func(context.Context, luatx.Commit) { panic("an observer's") }}.And(
			luatx.Observer{Committed: func(ctx context.Context, c luatx.Commit) {
				msg, _ := message.MessageFromContext(ctx)
				ids = append(ids, msg.ID()+" "+c.Result.Outcome.String())
			}})
	})
	mw, err := stack.Scripted(tr, stack.Config{RelayElsewhere: true})
	redistest.Must(t, err)
	router := rig.NewRouter(t, message.PipeConfig{}, mw, func(ctx context.Context) ([]*message.Message, error) {
		return nil, luatx.CmdableFromContext(ctx, client).Set(ctx, rig.Key(t, tr, "a", "k"), "v", 0).Err()
	})
	for range 2 {
		redistest.Must(t, assert.ErrOf(router.Process(t.Context(), message.New(nil, rig.Order("7"), nil))))
	}
	assert.Equal(t, strings.Join(ids, ", "), "7 committed, 7 duplicate", "the commits")
	if !strings.Contains(log.String(), "an observer's") {
		t.Errorf("the log says nothing of the panic: %q", log.String())
	}
}
