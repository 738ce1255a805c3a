package expiry_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// fixture is a store with its Transactor and a unique namespace.
type fixture struct {
	t *testing.T
	*expiry.Store

	tr *luatx.Transactor
}

func newFixture(t *testing.T, client redis.UniversalClient, cfg expiry.Config, change ...func(*luatx.Config)) fixture {
	t.Helper()
	namespace := redistest.Namespace(t)
	c := luatx.Config{Namespace: namespace, Keyspace: luatx.Partitions(4).WithPrefix(namespace)}
	for _, f := range change {
		f(&c)
	}
	tr, err := luatx.New(client, c)
	redistest.Must(t, err)
	store, err := expiry.New(tr, cfg)
	redistest.Must(t, err)
	return fixture{t, store, tr}
}

var (
	past   = time.UnixMilli(1_700_000_000_123)
	future = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

func expired(subject string) *message.Message {
	return message.New(nil, message.Attributes{"type": "expired", "source": "/tickets", "subject": subject}, nil)
}

func revoked(subject string) *message.Message {
	return message.New(nil, message.Attributes{"type": "revoked", "source": "/tickets", "subject": subject}, nil)
}

func expiredEvent(_ context.Context, timer expiry.Timer) (*message.Message, error) {
	return expired(timer.Subject), nil
}

func (f fixture) record(subject string, due time.Time) {
	f.t.Helper()
	redistest.Must(f.t, f.Record(redistest.Soon(f.t), subject, due))
}

func (f fixture) decides(subject string, due time.Time, want expiry.Decision) {
	f.t.Helper()
	got, err := f.Decide(redistest.Soon(f.t), expiry.Timer{Subject: subject, Due: due}, expired(subject), time.Time{})
	if err != nil || got != want {
		f.t.Errorf("the timer of %q for %v: %v, %v, want %v", subject, due, got, err, want)
	}
}

func (f fixture) revokes(subject string, want bool) {
	f.t.Helper()
	if got, err := f.Revoke(redistest.Soon(f.t), subject, revoked(subject)); err != nil || got != want {
		f.t.Errorf("revocation of %q: %t, %v, want %t", subject, got, err, want)
	}
}

func (f fixture) extends(subject string, due time.Time, want bool) {
	f.t.Helper()
	if got, err := f.Extend(redistest.Soon(f.t), subject, due); err != nil || got != want {
		f.t.Errorf("extension of %q: %t, %v, want %t", subject, got, err, want)
	}
}

func (f fixture) due(limit int) []string {
	f.t.Helper()
	var subjects []string
	for timer, err := range f.Due(redistest.Soon(f.t), limit) {
		redistest.Must(f.t, err)
		subjects = append(subjects, timer.Subject)
	}
	return subjects
}

// events claims the pending events and returns their types by subject.
func (f fixture) events() map[string][]string {
	f.t.Helper()
	events := make(map[string][]string)
	for _, msg := range f.claim() {
		events[msg.Subject()] = append(events[msg.Subject()], msg.Type())
	}
	return events
}

func (f fixture) claim() []*message.RawMessage {
	f.t.Helper()
	var events []*message.RawMessage
	for _, slot := range f.tr.Keyspace().Slots() {
		claim, err := link.Of(f.tr).Scripts.Claim(redistest.Soon(f.t), link.Of(f.tr).Scripts.Shard(slot), shard.Claiming{Limit: 10_000, Lease: time.Hour, Attempts: 10})
		redistest.Must(f.t, err)
		for _, e := range claim.Events {
			msg := new(message.RawMessage)
			redistest.Must(f.t, msg.UnmarshalJSON(e.Body))
			if msg.ID() != e.ID {
				f.t.Errorf("event %q holds the message %q", e.ID, msg.ID())
			}
			events = append(events, msg)
		}
	}
	return events
}

// has checks the pending events, at most one per subject.
func (f fixture) has(want map[string]string) {
	f.t.Helper()
	got := f.events()
	for subject, types := range got {
		if len(types) != 1 || want[subject] != types[0] {
			f.t.Errorf("%q has the events %q, want %q", subject, types, want[subject])
		}
	}
	if len(got) != len(want) {
		f.t.Errorf("events %v, want %v", got, want)
	}
}
