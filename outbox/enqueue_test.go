package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

func sold(id string, more ...string) *message.Message {
	attributes := message.Attributes{"id": id, "source": "/shop", "type": "sold"}
	for i := 0; i < len(more); i += 2 {
		attributes[more[i]] = more[i+1]
	}
	return message.New([]byte(`{"n":1}`), attributes, nil)
}

// inlineRelay is a relay that records its notifications.
type inlineRelay struct{ events chan shard.Event }

func (inlineRelay) Reserve() (time.Duration, bool) { return 0, false }
func (i inlineRelay) Committed(_ int, events []shard.Event, _ bool) {
	for _, event := range events {
		i.events <- event
	}
}

// TestEnqueueAddsAllEventsOrNoneOnceForEachID also checks that the relay of the process is notified of new events.
func TestEnqueueAddsAllEventsOrNoneOnceForEachID(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client, onePartition, func(c *luatx.Config) { c.OutboxCapacity = 3 })
		notified := inlineRelay{make(chan shard.Event, 100)}
		redistest.Must(t, link.Of(tr).Attach(notified))
		store, ctx := outbox.NewStore(tr).With(outbox.Config{
			OrderingKey: outbox.ByPartitionKey,
			Destination: func(*message.Message) (string, error) { return "there", nil },
		}), redistest.Soon(t)
		enqueue := func(want int, wanted string, events ...*message.Message) {
			t.Helper()
			n, err := store.Enqueue(ctx, "a", events...)
			if n != want || (err == nil) != (wanted == "") || err != nil && !strings.Contains(err.Error(), wanted) {
				t.Errorf("%d new, %v; want %d, %q", n, err, want, wanted)
			}
		}
		enqueue(0, "")
		enqueue(2, "", sold("1"), sold("2", "partitionkey", "k"))
		enqueue(0, "", sold("1"), sold("2", "partitionkey", "k"), sold("1"))
		if len(notified.events) != 2 {
			t.Errorf("the relay was notified of %d events", len(notified.events))
		}
		if first, second := <-notified.events, <-notified.events; first.ID != "1" || first.Key != "" || second.ID != "2" || second.Key != "k" {
			t.Errorf("the relay was notified of %+v, %+v", first, second)
		}
		before := state(t, client, tr)
		enqueue(0, "event 1: the event exists with another body", sold("3"), sold("1", "subject", "other"))
		enqueue(0, "event 1 has no id", sold("3"), sold(""))
		enqueue(0, "the outbox is full", sold("3", "partitionkey", "k"), sold("4", "partitionkey", "l"))
		if diff := redistest.Diff(before, state(t, client, tr)); diff != "" {
			t.Errorf("left a trace: %s", diff)
		}
		enqueue(1, "", sold("1"), sold("3", "partitionkey", "k"))
		for _, event := range claimed(t, tr) {
			if event.Destination() != "there" {
				t.Errorf("event %s to %q", event.ID(), event.Destination())
			}
			if event.ID() == "3" {
				t.Error("3 is before 2")
			}
		}
		if _, err := outbox.NewStore(newTransactor(t, client, func(c *luatx.Config) {
			c.Namespace, c.Keyspace = tr.Config().Namespace, luatx.OwnTags()
		})).Enqueue(ctx, tagIn(tr), sold("x")); !errors.Is(err, luatx.ErrKeyspace) {
			t.Errorf("into a shard of another keyspace: %v", err)
		}
	})
}

// tagIn returns the tag of the only partition, as an aggregate with its own tag.
func tagIn(tr *luatx.Transactor) string { return tr.Keyspace().Tags()[0] }

// state returns the keys of a Transactor's namespace without the sequence, which never decreases.
func state(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor) redistest.State {
	t.Helper()
	st, err := redistest.Dump(redistest.Soon(t), client, tr.Config().Namespace+"*")
	redistest.Must(t, err)
	delete(st.Keys, link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]).Key("seq"))
	return st
}

// TestScheduledEventCanBeCancelledAndMovedUntilItIsClaimed also checks that other events cannot.
func TestScheduledEventCanBeCancelledAndMovedUntilItIsClaimed(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
		notified := inlineRelay{make(chan shard.Event, 100)}
		redistest.Must(t, link.Of(tr).Attach(notified))
		hour := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		store := outbox.NewStore(tr)
		scheduled := store.With(outbox.Config{At: func(msg *message.Message) (time.Time, error) {
			if msg.Subject() == "bad" {
				return time.Time{}, errors.New("when?")
			}
			return hour, nil
		}})
		if _, err := scheduled.Enqueue(ctx, "a", sold("x", "subject", "bad")); err == nil || !strings.Contains(err.Error(), "when?") {
			t.Errorf("%v", err)
		}
		if n, err := scheduled.Enqueue(ctx, "a", sold("1"), sold("2"), sold("3")); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		redistest.Must(t, emit(tr, "a", "plain"))
		_, err := store.With(outbox.Config{OrderingKey: outbox.ByPartitionKey}).Enqueue(ctx, "a", sold("head", "partitionkey", "k"), sold("waits", "partitionkey", "k"))
		redistest.Must(t, err)
		cancels := func(id string, want bool) {
			t.Helper()
			if done, err := store.Cancel(ctx, "a", id); done != want || err != nil {
				t.Errorf("cancel %s: %t, %v", id, done, err)
			}
		}
		moves := func(id string, at time.Time, want bool) {
			t.Helper()
			if done, err := store.Move(ctx, "a", id, at); done != want || err != nil {
				t.Errorf("move %s: %t, %v", id, done, err)
			}
		}
		for _, id := range []string{"plain", "head", "waits", "never notified of"} {
			cancels(id, false)
			moves(id, hour, false)
		}
		cancels("1", true)
		cancels("1", false)
		slot := tr.Keyspace().Slots()[0]
		taken, err := store.Claim(ctx, slot, outbox.Work{})
		redistest.Must(t, err)
		if ids := idsOf(taken); !slices.Equal(ids, []string{"head", "plain"}) {
			t.Errorf("due: %v", ids)
		}
		for len(notified.events) > 0 {
			<-notified.events
		}
		moves("2", hour.Add(time.Hour), true)
		moves("3", time.UnixMilli(1), true)
		if first, second := <-notified.events, <-notified.events; !first.At.Equal(hour.Add(time.Hour)) || second.ID != "3" {
			t.Errorf("the relay was notified of %+v, %+v", first, second)
		}
		pending := client.ZScore(ctx, link.Of(tr).Scripts.Shard(slot).Key("pending"), "2").Val()
		if int64(pending) != hour.Add(time.Hour).UnixMilli() {
			t.Errorf("2 is due at %v", pending)
		}
		taken, err = store.Claim(ctx, slot, outbox.Work{})
		redistest.Must(t, err)
		if ids := idsOf(taken); !slices.Equal(ids, []string{"3"}) {
			t.Errorf("due: %v", ids)
		}
		cancels("3", false)
		moves("3", hour, false)
		_, err = store.Failed(ctx, taken, outbox.Work{}, outbox.Fault{ID: "3", Err: relay.Later(errors.New("not tried"), 0)})
		redistest.Must(t, err)
		cancels("3", false)
		if n, err := scheduled.Enqueue(ctx, "a", sold("1")); n != 1 || err != nil {
			t.Errorf("the id of a cancelled one: %d, %v", n, err)
		}
		cancels("1", true)
		if n, err := store.Enqueue(ctx, "a", sold("1")); n != 1 || err != nil {
			t.Errorf("the id of a cancelled one, to be published now: %d, %v", n, err)
		}
		cancels("1", false)
		moves("1", hour, false)
		year10000 := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, at := range []time.Time{time.UnixMilli(0), year10000.Add(-time.Millisecond)} {
			moves("2", at, true)
		}
		for _, at := range []time.Time{time.UnixMilli(-1), year10000} {
			if done, err := store.Move(ctx, "a", "2", at); done || err == nil {
				t.Errorf("moved to %v", at)
			}
		}
		if _, err := store.Cancel(ctx, "a", ""); err == nil {
			t.Error("an empty id was cancelled")
		}
	})
}

func idsOf(leased outbox.Batch) []string {
	var ids []string
	for _, e := range leased.Events {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids
}

func TestOutputsBecomeOrderedAndScheduledEvents(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client, onePartition)
		hour := time.Now().Add(time.Hour)
		r := router(t, "bill", func(context.Context) ([]*message.Message, error) {
			return []*message.Message{sold("1", "partitionkey", "k"), sold("2", "partitionkey", "k"), sold("3", "subject", "later"), sold("4")}, nil
		}, scripted(tr, outbox.Config{OrderingKey: outbox.ByPartitionKey, At: func(msg *message.Message) (time.Time, error) {
			if msg.Subject() == "later" {
				return hour, nil
			}
			return time.Time{}, nil
		}})...)
		_, err := r.Process(redistest.Soon(t), order("1"))
		redistest.Must(t, err)
		var ids []string
		for _, event := range claimed(t, tr) {
			ids = append(ids, event.ID())
		}
		slices.Sort(ids)
		if fmt.Sprint(ids) != "[1 4]" {
			t.Errorf("due: %v", ids)
		}
		if done, err := outbox.NewStore(tr).Cancel(redistest.Soon(t), "a", "3"); !done || err != nil {
			t.Errorf("cancel: %t, %v", done, err)
		}
		for _, cfg := range []outbox.Config{
			{OrderingKey: func(*message.Message) (string, error) { return "", errors.New("no") }},
			{At: func(*message.Message) (time.Time, error) { return hour, errors.New("no") }},
			{OrderingKey: outbox.ByPartitionKey, At: func(*message.Message) (time.Time, error) { return hour, nil }},
		} {
			r := router(t, "other", func(context.Context) ([]*message.Message, error) {
				return []*message.Message{sold("5", "partitionkey", "k")}, nil
			}, scripted(tr, cfg)...)
			if _, err := r.Process(redistest.Soon(t), order("2")); err == nil {
				t.Errorf("%+v: no error", cfg)
			}
		}
	})
}

func TestOnlyTheFirstEnqueuedEventOfAnEmptyShardWakes(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		inside := link.Of(y.tr)
		for _, c := range []struct {
			id   string
			wake bool
		}{{"first", true}, {"first", false}, {"second", false}} {
			event := shard.Event{ID: c.id, Body: []byte("{}"), Given: true}
			entrance, err := inside.Commits.Enqueue(redistest.Soon(t), inside.Scripts.Shard(y.slot), []shard.Event{event})
			if err != nil || entrance.State != commit.Committed || entrance.Woken != c.wake {
				t.Errorf("%s: %+v, %v, want a wake-up: %t", c.id, entrance, err, c.wake)
			}
		}
	})
}

func TestRelayIsNotifiedOfEventsThatAnOperatorMakesDue(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t))
	y.emit("t", "", "", "parked", "failed", "sent")
	y.park("odd", "parked")
	y.settle("failed", "", "slow", "too slow", "failed")
	y.settle("sent", "", "", "", "sent")
	notified, ctx := inlineRelay{make(chan shard.Event, 10)}, redistest.Soon(t)
	redistest.Must(t, link.Of(y.tr).Attach(notified))
	want := func(err error, ids ...string) {
		t.Helper()
		redistest.Must(t, err)
		got := []string{}
		for len(notified.events) > 0 {
			got = append(got, (<-notified.events).ID)
		}
		y.same(got, ids...)
	}
	want(nil, "") // The empty id stands for the events that were committed before the relay was attached.
	want(second(y.store.Rearm(ctx, y.slot, "nobody")))
	want(second(y.store.Rearm(ctx, y.slot, "parked")), "parked")
	want(second(y.store.Change(ctx, y.slot, outbox.Change{Act: outbox.ActRetry, Reason: "why"}, "failed")), "failed")
	want(second(y.store.Replay(ctx, time.Time{}, outbox.Filter{}, outbox.ReplayOptions{})), "sent")
}

func TestEnqueueClaimsAShardWithItsFirstEventAndLeavesTheInboxAsItIs(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
		store, inbox := outbox.NewStore(tr), link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]).Key("inbox:a")
		enqueue := func(want int, id string) {
			t.Helper()
			if n, err := store.Enqueue(ctx, "a", sold(id)); n != want || err != nil {
				t.Errorf("%s: %d new, %v", id, n, err)
			}
		}
		enqueue(1, "1")
		meta := client.HGet(ctx, inbox, "id").Val()
		if len(meta) < 28 {
			t.Fatalf("the shard has the identity %q", meta)
		}
		older := "1700086400000" + "1700000000000" + "1" + "1800000000000" + meta[40:] // with a second generation and a tombstone
		redistest.Must(t, client.HSet(ctx, inbox, "id", older).Err())
		enqueue(1, "2")
		if got := client.HGet(ctx, inbox, "id").Val(); got != older {
			t.Errorf("the inbox had %q, and has %q", older, got)
		}
		redistest.Must(t, client.Del(ctx, inbox).Err())
		enqueue(0, "2")
		if n := client.Exists(ctx, inbox).Val(); n != 0 {
			t.Error("an event that the shard had claims it")
		}
	})
}
