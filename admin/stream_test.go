package admin_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/pipeline"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// handled runs a handler once, whose outputs are events of these ids, in a stack.
func handled(t testing.TB, mw []message.Middleware, ids ...string) {
	t.Helper()
	r := message.NewRouter(message.PipeConfig{})
	redistest.Must(t, r.Use(mw...))
	redistest.Must(t, r.AddHandler("h", nil, message.NewHandler(func(context.Context, *message.TypedMessage[any]) ([]*message.Message, error) {
		var out []*message.Message
		for _, id := range ids {
			out = append(out, message.New(1, message.Attributes{"id": id, "type": "sold", "source": "/shop", "destination": "bank"}, nil))
		}
		return out, nil
	})))
	input := message.New(nil, message.Attributes{"id": "in", "source": "/shop", "type": "order", "subject": "a"}, message.NewAcking(nil, nil))
	_, err := r.Process(redistest.Soon(t), input)
	redistest.Must(t, err)
}

// backlog has the common methods of outbox.Store and Stream.
type backlog interface {
	Counts(ctx context.Context) (outbox.Counts, error)
	Parked(ctx context.Context, f outbox.Filter) iter.Seq2[outbox.Event, error]
	Rearm(ctx context.Context, slot int, ids ...string) (outbox.Answers, error)
	Discard(ctx context.Context, slot int, reason string, ids ...string) (outbox.Answers, error)
	Audit(ctx context.Context, since time.Time) iter.Seq2[outbox.Record, error]
}

// mode is a mode of the outbox, with a publisher that rejects events until it is repaired.
type mode struct {
	backlog backlog
	slot    int
	publish func(t testing.TB, refuse bool) (stop func(), published func() []string)
}

// scripted keeps events in the outbox of a Transactor.
func scripted(t testing.TB, client redis.UniversalClient) mode {
	t.Helper()
	namespace := redistest.Namespace(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: namespace, Keyspace: luatx.Partitions(1).WithPrefix(namespace)})
	redistest.Must(t, err)
	handled(t, []message.Middleware{luatx.Middleware(tr), outbox.Middleware(outbox.Config{})}, "1", "2", "3")
	return mode{
		outbox.NewStore(tr).As("alice"), tr.Keyspace().Slots()[0],
		func(t testing.TB, refuse bool) (func(), func() []string) {
			t.Helper()
			var out admintest.Till
			r, err := relay.New(tr, relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
				errs := make([]error, len(events))
				for i, e := range events {
					errs[i] = out.Take(e, refuse)
				}
				return errs
			}), relay.Config{SweepInterval: 10 * time.Millisecond})
			redistest.Must(t, err)
			return admintest.Running(t, r.Run), out.List
		},
	}
}

// streamed keeps events in a stream.
func streamed(t testing.TB, client redis.UniversalClient) mode {
	t.Helper()
	key := "{" + redistest.Namespace(t) + "}:outbox"
	handled(t, []message.Middleware{pipeline.Middleware(client), pipeline.Outbox(pipeline.OutboxConfig{Stream: key})}, "1", "2", "3")
	backlog, err := admin.NewStream(client, admin.StreamConfig{Stream: key, Operator: "alice"})
	redistest.Must(t, err)
	return mode{
		backlog, backlog.Slot(),
		func(t testing.TB, refuse bool) (func(), func() []string) {
			t.Helper()
			sub, err := stream.NewOutboxSubscriber(client, stream.SubscriberConfig{Stream: key, MaxDeliveries: 1, BlockTimeout: 20 * time.Millisecond})
			redistest.Must(t, err)
			var out admintest.Till
			return admintest.Running(t, func(ctx context.Context) error {
				messages, err := sub.Subscribe(ctx)
				if err != nil {
					return err
				}
				for msg := range messages {
					if err := out.Take(msg, refuse); err != nil {
						msg.Nack(err)
					} else {
						msg.Ack()
					}
				}
				return nil
			}), out.List
		},
	}
}

func TestOperatorActsTheSameWayOnOutboxesOfEitherMode(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]func(testing.TB, redis.UniversalClient) mode{"scripted": scripted, "streamed": streamed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				m := keep(t, client)
				counts := func() outbox.Counts {
					c, err := m.backlog.Counts(redistest.Soon(t))
					redistest.Must(t, err)
					return c
				}
				if c := counts(); c.Pending != 3 || c.Parked != 0 {
					t.Errorf("counts = %+v", c)
				}
				stop, _ := m.publish(t, true)
				redistest.Eventually(t, "all to be parked", func() bool { c := counts(); return c.Parked == 3 && c.Pending == 0 })
				stop()
				var ids []string
				for e, err := range m.backlog.Parked(redistest.Soon(t), outbox.Filter{Type: "sold", Destination: "bank", Text: "no such bank", Slots: []int{m.slot}}) {
					redistest.Must(t, err)
					if e.State != outbox.Parked || e.Slot != m.slot || e.Attempts != 1 || e.At.IsZero() || len(e.History) != 1 || !strings.Contains(e.Error, "no such bank") {
						t.Errorf("event = %+v", e)
					}
					ids = append(ids, e.ID)
				}
				for _, f := range []outbox.Filter{{Type: "x"}, {Destination: "x"}, {Text: "x"}, {Slots: []int{m.slot + 1}}, {IDs: []string{"x"}}, {OlderThan: time.Hour}} {
					for e, err := range m.backlog.Parked(redistest.Soon(t), f) {
						t.Errorf("%v: %+v, %v", f, e, err)
					}
				}
				if len(ids) != 3 {
					t.Fatalf("listed %v", ids)
				}
				answers, err := m.backlog.Discard(redistest.Soon(t), m.slot, "double", ids[0], "9999999999999-1")
				if want := (outbox.Answers{{ID: ids[0], Outcome: outbox.Done}, {ID: "9999999999999-1", Outcome: outbox.Unknown}}); err != nil || !slices.Equal(answers, want) {
					t.Errorf("answers = %v, err = %v", answers, err)
				}
				answers, err = m.backlog.Rearm(redistest.Soon(t), m.slot, ids[1:]...)
				if err != nil || answers.Done() != 2 {
					t.Errorf("answers = %v, err = %v", answers, err)
				}
				if c := counts(); c.Pending != 2 || c.Parked != 0 {
					t.Errorf("counts = %+v", c)
				}
				if _, err := m.backlog.Discard(redistest.Soon(t), m.slot, "", ids[0]); err == nil || !strings.Contains(err.Error(), "the reason is empty") {
					t.Error(err)
				}
				_, published := m.publish(t, false)
				redistest.Eventually(t, "the others to be published", func() bool { return slices.Equal(published(), []string{"2", "3"}) })
				var reported []string
				for r, err := range m.backlog.Audit(redistest.Soon(t), time.Time{}) {
					redistest.Must(t, err)
					reported = append(reported, fmt.Sprint(r.Who, " ", r.Act, " ", r.Done, "/", r.Asked, " ", r.Why, " ", r.Slot == m.slot, " ", len(r.IDs)))
				}
				if want := []string{"alice discard 1/2 double true 1", "alice rearm 2/2 by id true 2"}; !slices.Equal(reported, want) {
					t.Errorf("the audit has %q", reported)
				}
			})
		})
	}
}

func TestNewStreamRejectsIncompleteConfigAndForeignSlots(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{})
	defer func() { _ = client.Close() }()
	for want, cfg := range map[string]admin.StreamConfig{
		"StreamConfig.Stream or Operator is empty": {Stream: "s"},
		"Operator is empty; set both":              {Operator: "alice"},
		"are not keys of the slot":                 {Stream: "s", Operator: "alice", DeadLetter: "dead"},
	} {
		if _, err := admin.NewStream(client, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := admin.NewStream(nil, admin.StreamConfig{Stream: "s", Operator: "alice"}); err == nil {
		t.Error("NewStream accepts a nil client")
	}
	s, err := admin.NewStream(client, admin.StreamConfig{Stream: "s", Operator: "alice"})
	redistest.Must(t, err)
	if s.Slot() != slot.Of("s") {
		t.Errorf("slot %d", s.Slot())
	}
	if _, err := s.Rearm(t.Context(), s.Slot()+1, "1"); err == nil || !strings.Contains(err.Error(), "does not match: the stream") {
		t.Error(err)
	}
	for _, err := range s.Parked(t.Context(), outbox.Filter{Aggregate: "a"}) {
		if err == nil || !strings.Contains(err.Error(), "aggregates") {
			t.Error(err)
		}
	}
}

func TestStreamSkipsForeignEntriesAndSurvivesALostReply(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	client := redistest.Client(t, proxy.Addr())
	key := "{" + redistest.Namespace(t) + "}:outbox"
	s, err := admin.NewStream(client, admin.StreamConfig{Stream: key, Operator: "alice"})
	redistest.Must(t, err)
	ctx, deadLetters := redistest.Soon(t), stream.DeadLetterKey(key)
	add := func(stream string) string {
		id, err := client.XAdd(ctx, &redis.XAddArgs{Stream: deadLetters, Values: []string{
			"dead-reason", "why", "dead-stream", stream, "dead-entry", "1-1", "dead-group", "g", "dead-consumer", "c", "dead-deliveries", "3",
			"dead-first", "1", "dead-last", "2", "attributes", `{"id":"e","type":"t","source":"/s"}`, "data", "1",
		}}).Result()
		redistest.Must(t, err)
		return id
	}
	other := add(key + "2")
	foreign := client.XAdd(ctx, &redis.XAddArgs{Stream: deadLetters, Values: []string{"a", "b"}}).Val()
	ids := []string{other, foreign}
	for range 250 {
		ids = append(ids, add(key))
	}
	skipped, seen := 0, 0
	for e, err := range s.Parked(ctx, outbox.Filter{}) {
		if seen++; errors.Is(err, stream.ErrNotDeadLetter) && e.ID == foreign {
			skipped++
			continue
		}
		redistest.Must(t, err)
	}
	if skipped != 1 || seen != len(ids) {
		t.Errorf("%d listed, %d of them foreign", seen, skipped)
	}
	if _, err := s.Discard(ctx, s.Slot(), "loads the script", "1-1"); err != nil {
		t.Fatal(err)
	}
	proxy.Next(1, respproxy.Command("EVALSHA"), respproxy.CutReply())
	answers, err := s.Rearm(ctx, s.Slot(), ids...)
	if err != nil || answers.Done() != 250 || answers[0].Outcome != outbox.WrongState || answers[1].Outcome != outbox.WrongState {
		t.Errorf("%d of %d are done, %v", answers.Done(), len(answers), err)
	}
	if n := client.XLen(ctx, key).Val(); n != 250 {
		t.Errorf("the stream has %d re-armed entries", n)
	}
	if c, err := s.Counts(ctx); err != nil || c.Pending != 250 || c.Parked != 2 {
		t.Errorf("counts = %+v, err = %v", c, err)
	}
	records := 0
	for r, err := range s.Audit(ctx, time.Time{}) {
		redistest.Must(t, err)
		if records++; r.Call != records {
			t.Errorf("result = %+v", r)
		}
	}
	if records != 3 {
		t.Errorf("%d records of three calls", records)
	}
	redistest.Must(t, client.Del(ctx, deadLetters).Err())
	redistest.Must(t, client.Set(ctx, deadLetters, "of another type", 0).Err())
	var failed *outbox.StorageError
	if _, err := s.Counts(ctx); !errors.As(err, &failed) || failed.Slot != s.Slot() {
		t.Error(err)
	}
	if _, err := s.Rearm(ctx, s.Slot(), "1-1"); !errors.As(err, &failed) {
		t.Error(err)
	}
}

// TestCountsAreExactAfterUnreadEntriesWereDeleted checks it because the server does not know the lag of the group then.
func TestCountsAreExactAfterUnreadEntriesWereDeleted(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Shared(t).Client(t), redistest.Soon(t)
	key := "{" + redistest.Namespace(t) + "}:outbox"
	s, err := admin.NewStream(client, admin.StreamConfig{Stream: key, Operator: "alice"})
	redistest.Must(t, err)
	for i := range 5 {
		redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: fmt.Sprintf("%d-1", i+1), Values: []string{"a", "b"}}).Err())
	}
	redistest.Must(t, client.XGroupCreate(ctx, key, stream.OutboxGroup, "0").Err())
	redistest.Must(t, client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: stream.OutboxGroup, Consumer: "c", Streams: []string{key, ">"}, Count: 2}).Err())
	redistest.Must(t, client.XDel(ctx, key, "4-1").Err())
	if c, err := s.Counts(ctx); err != nil || c.Pending != 4 || c.Leased != 2 {
		t.Errorf("counts = %+v, err = %v", c, err)
	}
}
