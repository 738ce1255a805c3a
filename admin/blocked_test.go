package admin_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

func TestStatsCountEventsBehindParkedOnes(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 4)
		blocked := func() admin.Blocked {
			t.Helper()
			s, err := op.Stats(redistest.Soon(t))
			redistest.Must(t, err)
			if got, want := s.OldestUnpublished, s.At.Sub(s.Blocked.Since); s.Blocked.Keys > 0 && got != want {
				t.Errorf("the oldest is unpublished for %v, want %v", got, want)
			}
			return s.Blocked
		}
		if got := blocked(); got != (admin.Blocked{}) {
			t.Errorf("got %+v", got)
		}
		admintest.Block(t, tr, "a", "k", "a1", "a2", "a3")
		admintest.Block(t, tr, "b", "k", "b1", "b2")
		admintest.Block(t, tr, "c", "alone", "c1")
		got := blocked()
		var since time.Time
		for e, err := range op.Blocked(redistest.Soon(t)) {
			redistest.Must(t, err)
			if since.IsZero() {
				since = e.At
			}
		}
		if want := (admin.Blocked{Keys: 2, Events: 3, Since: since}); got != want || since.IsZero() {
			t.Errorf("got %+v, want %+v", got, want)
		}
		_, err := op.Outbox().RearmAll(redistest.Soon(t), outbox.Filter{}, outbox.RearmOptions{})
		redistest.Must(t, err)
		if got := blocked(); got != (admin.Blocked{}) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestStatsReportThatMoreKeysMayBeBlocked(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr, op := admintest.Service(t, client, 1)
	admintest.Block(t, tr, "a", "k", "head", "behind")
	key := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]).Key("parked")
	members := make([]redis.Z, 21_000)
	for i := range members {
		members[i] = redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: fmt.Sprint("orphan", i)}
	}
	redistest.Must(t, client.ZAdd(redistest.Soon(t), key, members...).Err())
	s, err := op.Stats(redistest.Soon(t))
	redistest.Must(t, err)
	if s.Blocked.Keys != 1 || s.Blocked.Events != 1 || !s.Blocked.More {
		t.Errorf("s.Blocked = %+v", s.Blocked)
	}
}

func TestOldestUnpublishedCountsFromTheFirstRecordedFailure(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	tr, op := admintest.Service(t, client, 1)
	slot, err := op.Outbox().Slot("a")
	redistest.Must(t, err)
	start := time.Now().Truncate(time.Second)
	age := func(want time.Duration) {
		t.Helper()
		s, err := op.Stats(redistest.Soon(t))
		redistest.Must(t, err)
		if s.Oldest != 0 || s.OldestUnpublished.Round(time.Second) != want {
			t.Errorf("due for %v, unpublished for %v, want %v", s.Oldest, s.OldestUnpublished, want)
		}
	}
	server.SetTime(start)
	admintest.Emit(t, tr, "a", "1")
	work := outbox.Work{BackoffBase: time.Minute, BackoffCap: time.Minute, Lease: time.Hour}
	claim := func() outbox.Batch {
		t.Helper()
		batch, err := op.Outbox().Claim(redistest.Soon(t), slot, work)
		redistest.Must(t, err)
		if len(batch.Events) != 1 {
			t.Fatalf("claimed %+v", batch)
		}
		return batch
	}
	batch := claim()
	age(0)
	_, err = op.Outbox().Failed(redistest.Soon(t), batch, work, outbox.Fault{ID: "1", Err: relay.Classify("slow", errors.New("too slow"))})
	redistest.Must(t, err)
	age(0)
	server.SetTime(start.Add(10 * time.Minute))
	claim()
	age(10 * time.Minute) // the event is leased
	_, err = op.Outbox().Failed(redistest.Soon(t), batch, work, outbox.Fault{ID: "1", Err: errors.New("stale: another claim has it")})
	redistest.Must(t, err)
	server.SetTime(start.Add(2 * time.Hour)) // the lease is over
	batch = claim()
	_, err = op.Outbox().Failed(redistest.Soon(t), batch, work, outbox.Fault{ID: "1", Err: message.Permanent(errors.New("refused"))})
	redistest.Must(t, err)
	age(0) // a parked event needs an operator
	_, err = op.Outbox().Rearm(redistest.Soon(t), slot, "1")
	redistest.Must(t, err)
	claim()
	age(0) // its failures are from before the re-arm
}
