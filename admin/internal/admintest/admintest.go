// Package admintest prepares services for the tests of admin and of the packages below it.
package admintest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

// Must fails the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Service returns a Transactor with a namespace of its own, and its operator. It compiles no plan, so that a test can count commands.
func Service(t testing.TB, client redis.UniversalClient, partitions int) (*luatx.Transactor, *admin.Operator) {
	t.Helper()
	namespace := redistest.Namespace(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: namespace, Keyspace: luatx.Partitions(partitions).WithPrefix(namespace), NoCompile: true})
	Must(t, err)
	return tr, Operator(t, client, tr)
}

// Operator returns an operator called alice who accepts every destination but forbidden.
func Operator(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor) *admin.Operator {
	t.Helper()
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "alice", Destinations: func(to string) error {
		if to == "forbidden" {
			return errors.New("nobody may")
		}
		return nil
	}})
	Must(t, err)
	return op
}

// Emit adds events with the given ids to the outbox of an aggregate.
func Emit(t testing.TB, tr *luatx.Transactor, aggregate string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		_, err := tr.Enqueue(redistest.Soon(t), aggregate, luatx.Event{
			ID: id, Body: []byte(`{"specversion":"1.0","id":"` + id + `","type":"sold","source":"/shop","destination":"bank"}`),
		})
		Must(t, err)
	}
}

// Relay runs a relay until stop or the end of the test. The function returns the fate of each event.
func Relay(t testing.TB, tr *luatx.Transactor, publish func(*message.RawMessage) error) (stop func()) {
	t.Helper()
	r, err := relay.New(tr, relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
		errs := make([]error, len(events))
		for i, e := range events {
			errs[i] = publish(e)
		}
		return errs
	}), relay.Config{SweepInterval: 10 * time.Millisecond, NoInline: true})
	Must(t, err)
	return Running(t, r.Run)
}

// ParkDue runs a relay that parks due events, each with the class that a function returns, until n are parked.
func ParkDue(t testing.TB, tr *luatx.Transactor, n int64, class func(*message.RawMessage) string) {
	t.Helper()
	defer Relay(t, tr, func(e *message.RawMessage) error {
		return relay.Classify(class(e), message.Permanent(errors.New("refused: "+e.Type())))
	})()
	store := outbox.NewStore(tr)
	redistest.Eventually(t, "the events to be parked", func() bool {
		c, err := store.Counts(t.Context())
		return err == nil && c.Parked == n
	})
}

// ParkEvent enqueues and parks one event as it is, and returns the slot of its shard.
func ParkEvent(t testing.TB, tr *luatx.Transactor, aggregate string, e luatx.Event, class, text string) (slot int) {
	t.Helper()
	slot, err := outbox.NewStore(tr).Slot(aggregate)
	Must(t, err)
	inside := link.Of(tr) // accepts bodies that Enqueue rejects
	_, err = inside.Commits.Enqueue(redistest.Soon(t), inside.Scripts.Shard(slot), []shard.Event{{ID: e.ID, Body: e.Body, Key: e.Key, At: e.At}})
	Must(t, err)
	settle(t, tr, slot, shard.Settlement{ID: e.ID, What: "parked", Class: class, Error: text})
	return slot
}

// Block enqueues events of an ordering key and parks the first one, so that it holds back the others. It returns the slot of their shard.
func Block(t testing.TB, tr *luatx.Transactor, aggregate, key string, ids ...string) (slot int) {
	t.Helper()
	for i, id := range ids {
		e := luatx.Event{ID: id, Key: key, Body: []byte(`{"specversion":"1.0","id":"` + id + `","type":"sold","source":"/shop","destination":"bank"}`)}
		if i == 0 {
			slot = ParkEvent(t, tr, aggregate, e, "http_422", "no such account")
			continue
		}
		_, err := tr.Enqueue(redistest.Soon(t), aggregate, e)
		Must(t, err)
	}
	return slot
}

func settle(t testing.TB, tr *luatx.Transactor, slot int, settlements ...shard.Settlement) {
	t.Helper()
	scripts := link.Of(tr).Scripts
	_, err := scripts.Settle(redistest.Soon(t), scripts.Shard(slot), shard.Settling{Attempts: 10, Retention: time.Hour}, settlements)
	Must(t, err)
}

// Register adds a process to the list of a Transactor's namespace, as if it ran.
func Register(t testing.TB, tr *luatx.Transactor, kind string, report process.Report) (id string) {
	t.Helper()
	id = kind + "-" + redistest.Tag(t)
	Must(t, link.Of(tr).Processes.Beat(redistest.Soon(t), id, kind, report))
	return id
}

// Hostile is markup that must not take effect anywhere.
const Hostile = `<script>alert("x")</script>`

// Park commits and parks events of an aggregate for a class of failures. Their subjects, data and failures are hostile.
func Park(t testing.TB, tr *luatx.Transactor, aggregate, class, kind string, ids ...string) {
	t.Helper()
	slot, err := outbox.NewStore(tr).Slot(aggregate)
	Must(t, err)
	settlements := make([]shard.Settlement, len(ids))
	_, err = tr.Transact(redistest.Soon(t), aggregate, func(tx *luatx.Tx) error {
		for i, id := range ids {
			body, err := json.Marshal(map[string]any{
				"specversion": "1.0", "id": id, "type": kind, "source": "/shop", "destination": "bank", "subject": Hostile, "data": map[string]any{"card": "4111", "text": Hostile},
			})
			if err != nil {
				return err
			}
			settlements[i] = shard.Settlement{ID: id, What: "parked", Class: class, Error: "the bank says " + Hostile}
			if err := tx.Emit(luatx.Event{ID: id, Body: body}); err != nil {
				return err
			}
		}
		return nil
	})
	Must(t, err)
	settle(t, tr, slot, settlements...)
}

// Till receives published events.
type Till struct {
	mu  sync.Mutex
	ids []string
}

// Take accepts an event, or rejects it permanently.
func (l *Till) Take(e *message.RawMessage, refuse bool) error {
	if refuse {
		return message.Permanent(errors.New("no such bank"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, e.ID())
	return nil
}

// List returns the sorted ids of the accepted events.
func (l *Till) List() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	sorted := slices.Clone(l.ids)
	slices.Sort(sorted)
	return sorted
}

// Running calls run, which ends with its context, until stop or the end of the test.
func Running(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Lines keeps a log.
type Lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Text returns the log so far.
func (l *Lines) Text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// DeadLetters writes n dead letters of a stream and a group, with hostile subjects and data.
func DeadLetters(t testing.TB, client redis.UniversalClient, key, group, reason string, n int) {
	t.Helper()
	for i := range n {
		at := time.Now().Add(-time.Minute).UnixMilli()
		Must(t, client.XAdd(redistest.Soon(t), &redis.XAddArgs{Stream: stream.DeadLetterKey(key), Values: []any{
			"dead-reason", reason, "dead-stream", key, "dead-entry", fmt.Sprint(at, "-", i), "dead-group", group, "dead-consumer", "c",
			"dead-deliveries", 3, "dead-first", at, "dead-last", at + 1000,
			"ce_specversion", "1.0", "ce_id", fmt.Sprint(group, i), "ce_type", "sold", "ce_source", "/shop", "ce_subject", Hostile,
			"data", `{"card":"4111"}`,
		}}).Err())
	}
}
