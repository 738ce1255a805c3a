package admin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/repair"
)

// historyOf returns the history of the last two hours.
func historyOf(t *testing.T, client redis.UniversalClient, op *admin.Operator) admin.History {
	t.Helper()
	now, err := client.Time(t.Context()).Result()
	redistest.Must(t, err)
	h, err := op.History(redistest.Soon(t), admin.HistoryRange{Since: now.Add(-2 * time.Hour)})
	redistest.Must(t, err)
	return h
}

// publishAll runs a relay until no event is pending.
func publishAll(t *testing.T, tr *luatx.Transactor, op *admin.Operator, publish func(*message.RawMessage) error) {
	t.Helper()
	stop := admintest.Relay(t, tr, publish)
	redistest.Eventually(t, "the events to be published", func() bool {
		c, err := op.Outbox().Counts(t.Context())
		return err == nil && c.Pending == 0
	})
	stop()
}

func TestHistoryOutlivesRelaysAndSumsAllProcesses(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 4)
		admintest.Emit(t, tr, "a", "1", "2", "3")
		publishAll(t, tr, op, func(*message.RawMessage) error { return nil })
		admintest.Emit(t, tr, "b", "4", "5")
		again, err := luatx.New(client, tr.Config()) // as after a restart
		redistest.Must(t, err)
		link.Of(again).History.Interval = 10 * time.Millisecond
		publishAll(t, again, op, func(e *message.RawMessage) error {
			if e.ID() == "5" {
				return relay.Classify("http_422", message.Permanent(errors.New("no such account")))
			}
			return nil
		})
		stop := admintest.Relay(t, again, func(*message.RawMessage) error { return nil })
		var h admin.History
		redistest.Eventually(t, "a measurement", func() bool {
			h = historyOf(t, client, admintest.Operator(t, client, again))
			return h.Total.Measured != nil && h.Total.Measured.Parked == 1
		})
		stop()
		if got := h.Total.Destinations["bank"]; got != (admin.Outcomes{Sent: 4, Parked: 1}) || h.Total.Outcomes != got {
			t.Errorf("total = %+v", h.Total)
		}
		if h.Total.Classes["http_422"] != 1 || h.Step != 15*time.Minute || len(h.Intervals) == 0 {
			t.Errorf("history = %+v", h)
		}
	})
}

func TestEventOfAnUnavailableDestinationCountsAsReturnedWithItsClass(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, op := admintest.Service(t, client, 1)
	admintest.Emit(t, tr, "a", "1")
	down := true
	publishAll(t, tr, op, func(*message.RawMessage) error {
		if down {
			down = false
			return relay.Classify("http_503", errors.Join(relay.ErrUnavailable, errors.New("maintenance")))
		}
		return nil
	})
	h := historyOf(t, client, op)
	if got := h.Total.Destinations["bank"]; got.Returned == 0 || got.Sent != 1 || h.Total.Classes["http_503"] != 1 {
		t.Errorf("total = %+v", h.Total)
	}
}

func TestRepairWorkerMeasuresTheOutboxWhenNoRelayRuns(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, op := admintest.Service(t, client, 2)
	admintest.Emit(t, tr, "a", "1", "2", "3")
	worker, err := repair.New(tr, repair.Config{})
	redistest.Must(t, err)
	admintest.Running(t, worker.Run)
	redistest.Eventually(t, "a measurement", func() bool {
		m := historyOf(t, client, op).Total.Measured
		return m != nil && m.Events == 3
	})
}

func TestNoHistoryAndNoRegistrationWriteNoHistory(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	for _, off := range []func(*luatx.Config){
		func(c *luatx.Config) { c.NoHistory = true }, func(c *luatx.Config) { c.NoRegistration = true },
	} {
		cfg := luatx.Config{Namespace: redistest.Namespace(t), Keyspace: luatx.Partitions(1)}
		off(&cfg)
		tr, err := luatx.New(client, cfg)
		redistest.Must(t, err)
		op := admintest.Operator(t, client, tr)
		admintest.Emit(t, tr, "a", "1")
		publishAll(t, tr, op, func(*message.RawMessage) error { return nil })
		if keys := client.Keys(t.Context(), cfg.Namespace+":*history*").Val(); len(keys) > 0 {
			t.Errorf("written: %v", keys)
		}
	}
}

func TestHistoryRejectsARangeThatEndsBeforeItBegins(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, op := admintest.Service(t, client, 1)
	now := time.Now()
	for _, r := range []admin.HistoryRange{{Since: now.Add(-time.Hour), Until: now.Add(-2 * time.Hour)}, {Since: now.Add(time.Hour)}, {Step: -1}} {
		if h, err := op.History(context.Background(), r); err == nil {
			t.Errorf("%+v: %+v", r, h)
		}
	}
	if h, err := op.History(context.Background(), admin.HistoryRange{}); err != nil || h.Step != 10*time.Second || len(h.Intervals) > 0 {
		t.Errorf("history = %+v, err = %v", h, err)
	}
}
