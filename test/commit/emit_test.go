package commit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

type orderPlaced struct{ Order string }

// emitted returns the events in the outbox, and their ordering keys.
func emitted(t *testing.T, tr *luatx.Transactor) (events []*message.RawMessage, keys []string) {
	t.Helper()
	for event, err := range outbox.NewStore(tr).List(redistest.Soon(t), outbox.Pending, outbox.ListOptions{}) {
		redistest.Must(t, err)
		events, keys = append(events, event.Message), append(keys, event.Key)
	}
	return events, keys
}

func TestEmitEncodesDataUnderTheTypeOfItsGoType(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client)
	attrs, id, at := message.Attributes{"source": "/orders", "subject": "17"}, "", time.Now().Round(0)
	redistest.Must(t, assert.ErrOf(tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
		id = tx.EventID()
		return tx.Emit(luatx.Event{Data: orderPlaced{"17"}, Attributes: attrs, Key: "k"})
	}, luatx.WithID("1"))))
	events, keys := emitted(t, tr)
	if len(events) != 1 {
		t.Fatalf("%d events, want 1", len(events))
	}
	event := events[0]
	assert.Equal(t, event.ID(), id, "the id")
	assert.Equal(t, event.Type(), "order.placed", "the type")
	assert.Equal(t, event.Source()+event.Subject(), "/orders17", "the attributes")
	assert.Equal(t, string(event.Data), `{"Order":"17"}`, "the data")
	assert.Equal(t, keys[0], "k", "the ordering key")
	assert.Equal(t, len(attrs), 2, "the caller's attributes")
	for name, event := range map[string]luatx.Event{
		"given":  {Data: orderPlaced{}, Attributes: message.Attributes{"type": "given", "time": at}},
		"no one": {Data: map[string]int{}, Attributes: message.Attributes{"id": "of its own"}},
	} {
		redistest.Must(t, assert.ErrOf(tr.Enqueue(redistest.Soon(t), name, func() luatx.Event {
			if event.Attributes.ID() == "" {
				event.ID = "1"
			}
			return event
		}())))
	}
	events, _ = emitted(t, tr)
	kinds := map[string]string{}
	for _, event := range events {
		kinds[event.ID()] = event.Type()
	}
	assert.Equal(t, kinds["1"], "given", "the type that is given")
	if kind, ok := kinds["of its own"]; !ok || kind != "" {
		t.Errorf("data without a name: type %q, found %t, want none", kind, ok)
	}
}

func TestPublishAddsAnEntryWithTheCommit(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := rig.NewTransactor(t, client), redistest.Soon(t)
		jobs := rig.Key(t, tr, "a", "jobs")
		given := message.New(orderPlaced{"17"}, message.Attributes{"type": "pack", "source": "/orders", "subject": "a"}, nil)
		event := ""
		publish := func(fail string, opts ...luatx.Option) error {
			return assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				event = tx.EventID()
				err := errors.Join(tx.Publish(jobs, given), tx.Publish(jobs, message.New([]byte("\x00raw"), message.Attributes{"id": "own"}, nil)))
				if fail != "" {
					tx.Pipeline().Incr(ctx, fail)
				}
				return err
			}, opts...))
		}
		text := rig.Key(t, tr, "a", "text")
		redistest.Must(t, client.Set(ctx, text, "x", 0).Err())
		failed := new(luatx.CommandError)
		if err := publish(text); !errors.As(err, &failed) || client.Exists(ctx, jobs).Val() != 0 {
			t.Fatalf("a transaction that fails: %v, and the stream exists", err)
		}
		redistest.Must(t, publish("", luatx.WithID("1")), publish("", luatx.WithID("1")))
		entries, err := client.XRange(ctx, jobs, "-", "+").Result()
		redistest.Must(t, err)
		if len(entries) != 2 {
			t.Fatalf("%d entries, want 2", len(entries))
		}
		first, err := stream.Unmarshal(entries[0].ID, entries[0].Values)
		redistest.Must(t, err)
		assert.Equal(t, first.Type()+first.Source()+first.Subject(), "pack/ordersa", "the attributes")
		assert.Equal(t, string(first.Data), `{"Order":"17"}`, "the data")
		assert.Equal(t, first.DataContentType(), message.ContentTypeJSON, "the content type")
		if id := first.ID(); id == "" || id == entries[0].ID || id == event {
			t.Errorf("the id is %q, that of the entry %q, and that of the event %q: want one of its own", id, entries[0].ID, event)
		}
		second, err := stream.Unmarshal(entries[1].ID, entries[1].Values)
		redistest.Must(t, err)
		assert.Equal(t, second.ID()+string(second.Data), "own\x00raw", "the id and the data that are given")
		assert.Equal(t, given.ID(), "", "the id of the caller's message")
	})
}

func TestPublishDerivesTheSameIDForTheSameMessage(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ids := map[string]int{}
	for _, id := range []string{"1", "1", "2"} {
		tr := rig.NewTransactor(t, client) // of another namespace, where the id is new
		jobs := rig.Key(t, tr, "a", "jobs")
		_, err := tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			return errors.Join(tx.Publish(jobs, message.New(nil, nil, nil)), tx.Publish(jobs, message.New(nil, nil, nil)))
		}, luatx.WithID(id))
		redistest.Must(t, err)
		for _, entry := range client.XRange(t.Context(), jobs, "-", "+").Val() {
			ids[entry.Values["ce_id"].(string)]++
		}
	}
	twice := 0
	for _, n := range ids {
		if n == 2 {
			twice++
		}
	}
	if len(ids) != 4 || twice != 2 {
		t.Errorf("the ids of three transactions, of which two have one id: %v", ids)
	}
}

func TestPublishRejectsMessagesThatCannotBeInTheCommit(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client)
	msg := message.New(nil, message.Attributes{"type": "t"}, nil)
	for name, test := range map[string]struct {
		stream func() string
		msg    *message.Message
		want   error
	}{
		"another slot": {func() string { return "elsewhere" }, msg, luatx.ErrCrossSlot},
		"data":         {func() string { return rig.Key(t, tr, "a", "jobs") }, message.New(func() {}, nil, nil), message.ErrEncode},
		"attribute":    {func() string { return rig.Key(t, tr, "a", "jobs") }, message.New(nil, message.Attributes{"time": 1}, nil), message.ErrEncode},
	} {
		_, err := tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error { return tx.Publish(test.stream(), test.msg) })
		assert.Is(t, err, test.want, "%s", name)
	}
	_, err := tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error { return tx.Publish(rig.Key(t, tr, "a", "jobs"), nil) })
	assert.ErrorContains(t, err, "the message is nil", "nil")
}

func TestProceduresEmitIntegersBelow53BitsExactly(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client, withProcedures(luatx.Procedure{Name: "numbers", Source: `
emit{type = 't', source = '/s', data = {123456789012345, {n = -9007199254740991}, 9007199254740991, 5, 0.5, '123456789012345'}}`}))
		redistest.Must(t, assert.ErrOf(tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			tx.Call("numbers", nil)
			return nil
		})))
		events, _ := emitted(t, tr)
		if len(events) != 1 {
			t.Fatalf("%d events, want 1", len(events))
		}
		assert.Equal(t, string(events[0].Data), `[123456789012345,{"n":-9007199254740991},9007199254740991,5,0.5,"123456789012345"]`, "the data")
	})
}

func TestProceduresEmitUpToTheBoundsOfTimesAndKeys(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client, withProcedures(luatx.Procedure{Name: "bounds", Source: `
emit('{}', 'first', {at = 0})
emit('{}', 'last', {at = 253402300799999})
emit('{}', 'longest', {key = string.rep('k', 256)})`}))
		redistest.Must(t, assert.ErrOf(tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			tx.Call("bounds", nil)
			return nil
		})))
		for id, want := range map[string]float64{"first": 0, "last": 253402300799999} {
			at, err := client.ZScore(redistest.Soon(t), shardOf(tr).Key("pending"), id).Result()
			if err != nil || at != want {
				t.Errorf("%s is due at %.0f, want %.0f; %v", id, at, want, err)
			}
		}
		header := client.HGet(redistest.Soon(t), shardOf(tr).Key("headers"), "longest").Val()
		assert.Equal(t, len(header), 16+256, "bytes of the sequence and the key")
	})
}
