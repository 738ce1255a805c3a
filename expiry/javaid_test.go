package expiry_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

// javaVectors are ids from OpenJDK 17, where the id of an event is
// UUID.nameUUIDFromBytes((subject + "|" + Instant.ofEpochMilli(due)).getBytes(UTF_8)).
type javaVectors struct {
	NameUUIDFromBytes []struct{ Name, ID string } // the name in hexadecimal digits
	Events            []struct {
		Subject string
		Due     int64 // milliseconds
		ID      string
	}
}

func readJavaVectors(t *testing.T) javaVectors {
	t.Helper()
	text, err := os.ReadFile("testdata/java.json")
	redistest.Must(t, err)
	var vectors javaVectors
	redistest.Must(t, json.Unmarshal(text, &vectors))
	if len(vectors.NameUUIDFromBytes) < 10 || len(vectors.Events) < 40 {
		t.Fatalf("%d names and %d events, want more", len(vectors.NameUUIDFromBytes), len(vectors.Events))
	}
	return vectors
}

func TestIDsAreThoseOfJava(t *testing.T) {
	t.Parallel()
	vectors := readJavaVectors(t)
	for _, v := range vectors.NameUUIDFromBytes {
		name, err := hex.DecodeString(v.Name)
		redistest.Must(t, err)
		if got := expiry.NameUUIDFromBytes(name); got != v.ID {
			t.Errorf("NameUUIDFromBytes(%x) is %s, in Java %s", name, got, v.ID)
		}
	}
	for _, v := range vectors.Events {
		due := time.UnixMilli(v.Due)
		for _, due := range []time.Time{due, due.UTC(), due.Add(999 * time.Microsecond), due.In(time.FixedZone("", -7*3600))} {
			if got := expiry.JavaEventID(v.Subject, due); got != v.ID {
				t.Errorf("JavaEventID(%q, %v) is %s, in Java %s", v.Subject, due, got, v.ID)
			}
		}
	}
}

// TestDecideGivesEventsTheConfiguredID decides each timer twice, by a worker and directly, and once more after the server has
// forgotten the decision.
func TestDecideGivesEventsTheConfiguredID(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{EventID: expiry.JavaEventID})
		ctx := redistest.Soon(t)
		ids := make(map[string]string) // by subject
		var timers []expiry.Timer
		for _, v := range readJavaVectors(t).Events {
			if v.Due%1000 == 123 {
				timers = append(timers, expiry.Timer{Subject: v.Subject, Due: time.UnixMilli(v.Due)})
				ids[v.Subject] = v.ID
				f.record(v.Subject, time.UnixMilli(v.Due))
			}
		}
		f.decides(timers[0].Subject, timers[0].Due, expiry.Enqueued)
		worker, stop := f.working(expiry.WorkerConfig{})
		redistest.Eventually(t, "the worker to decide the others", func() bool { return worker.Counts().Enqueued == int64(len(timers)-1) })
		stop()
		for _, timer := range timers {
			f.decides(timer.Subject, timer.Due, expiry.AlreadyEnqueued)
		}
		for _, slot := range f.tr.Keyspace().Slots() {
			redistest.Must(t, client.Del(ctx, link.Of(f.tr).Scripts.Shard(slot).Key("decided")).Err())
		}
		for _, timer := range timers {
			f.record(timer.Subject, timer.Due)
			named := expired(timer.Subject)
			named.Attributes[message.AttrID] = ids[timer.Subject]
			if got, err := f.Decide(ctx, timer, named, time.Time{}); got != expiry.AlreadyEnqueued || err != nil {
				t.Errorf("decision of %q after its memory was lost: %v, %v", timer.Subject, got, err)
			}
		}
		events := f.claim()
		for _, event := range events {
			if want := ids[event.Subject()]; event.ID() != want {
				t.Errorf("the event of %q has the id %s, want %s", event.Subject(), event.ID(), want)
			}
		}
		if len(events) != len(timers) {
			t.Errorf("%d events of %d timers", len(events), len(timers))
		}
		if left := f.due(len(timers)); len(left) > 0 {
			t.Errorf("%q are open", left)
		}
	})
}

// TestEventIDGetsTheTimeThatTheServerKeeps passes times in another zone and with a fraction of a millisecond to a function that
// formats them unchanged.
func TestEventIDGetsTheTimeThatTheServerKeeps(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	f := newFixture(t, client, expiry.Config{EventID: func(subject string, due time.Time) string {
		return subject + " " + due.Format(time.RFC3339Nano)
	}})
	due := past.Add(456 * time.Microsecond).In(time.FixedZone("", 3600))
	f.record("a", due)
	f.decides("a", due, expiry.Enqueued)
	if events := f.claim(); len(events) != 1 || events[0].ID() != "a 2023-11-14T22:13:20.123Z" {
		t.Errorf("%v", events)
	}
}

// TestSharedEventIDLosesNoEvent has an EventID that returns the same id for all subjects. Only one event can have it.
func TestSharedEventIDLosesNoEvent(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{EventID: func(subject string, due time.Time) string {
			if strings.HasPrefix(subject, "own") {
				return expiry.EventID(subject, due)
			}
			return "shared"
		}}, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1).WithPrefix(c.Namespace) })
		f.record("a", past)
		f.record("b", past)
		f.decides("a", past, expiry.Enqueued)
		if got, err := f.Decide(redistest.Soon(t), expiry.Timer{Subject: "b", Due: past}, expired("b"), time.Time{}); got != 0 || err == nil || !strings.Contains(err.Error(), "shared") {
			t.Errorf("a timer whose event's id is taken: %v, %v", got, err)
		}
		want := map[string]string{"a": "expired"}
		for i := range 5 {
			subject := "own" + strconv.Itoa(i)
			f.record(subject, past.Add(time.Second))
			want[subject] = "expired"
		}
		var said rig.Lines
		worker, stop := f.working(expiry.WorkerConfig{BatchSize: 1, Logger: said.Logger()})
		redistest.Eventually(t, "the others to be decided", func() bool { return worker.Counts().Enqueued == 5 })
		redistest.Eventually(t, "the failure to be counted", func() bool { return worker.Counts().Failed > 0 })
		redistest.Eventually(t, "the failure to be logged", func() bool { return said.Count("the outbox has another event under the id shared") > 0 })
		stop()
		if left := f.due(10); !slices.Equal(left, []string{"b"}) {
			t.Errorf("%q are open, want b", left)
		}
		f.has(want)
	})
}

func TestDecideRejectsAnEventIDThatIsNotText(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	for _, id := range []string{"", "\xff"} {
		f := newFixture(t, client, expiry.Config{EventID: func(string, time.Time) string { return id }})
		f.record("a", past)
		_, err := f.Decide(redistest.Soon(t), expiry.Timer{Subject: "a", Due: past}, expired("a"), time.Time{})
		if err == nil || !strings.Contains(err.Error(), "Config.EventID") {
			t.Errorf("id %q: %v", id, err)
		}
		if left := f.due(1); len(left) != 1 {
			t.Errorf("id %q: %q are open", id, left)
		}
	}
}
