package outbox_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// parkMany commits and parks n events in four shards; the last nine tenths of each shard are of the type.
func parkMany(t testing.TB, tr *luatx.Transactor, n int, typ string) {
	t.Helper()
	const batch = 1000
	scripts := link.Of(tr).Scripts
	for from, i := 0, 0; from < n; from, i = from+batch, i+1 {
		aggregate := fmt.Sprint("a", i)
		settlements := make([]shard.Settlement, batch)
		_, err := tr.Transact(redistest.Soon(t), aggregate, func(tx *luatx.Tx) error {
			for j := range batch {
				id, kind := fmt.Sprint("e", from+j), typ
				if from < n/10 {
					kind = "sold"
				}
				settlements[j] = shard.Settlement{ID: id, What: "parked", Class: "unrouted", Error: "no route"}
				body := fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/shop","type":%q,"destination":"bank","data":{"n":%d}}`, id, kind, j)
				if err := tx.Emit(luatx.Event{ID: id, Body: body}); err != nil {
					return err
				}
			}
			return nil
		})
		redistest.Must(t, err)
		_, err = scripts.Settle(redistest.Soon(t), scripts.Shard(slotOf(t, tr, aggregate)), shard.Settling{Attempts: 10, Retention: time.Hour}, settlements)
		redistest.Must(t, err)
	}
}

// TestRearmAllOfManyStopsAtTheClassThatParksAgain also checks that a canary of that class prevents the rest, that all events
// are published after the cause is fixed, and that the audit records each operation.
func TestRearmAllOfManyStopsAtTheClassThatParksAgain(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		n, rate := 4000, 2000.0 // slow enough that the relay fails before all are re-armed
		switch {
		case strings.HasSuffix(t.Name(), "/miniredis"):
			n, rate = 2000, 500
		case os.Getenv("LUATX_VERIFY") != "":
			n, rate = 100_000, 50_000
		}
		tr := newTransactor(t, client)
		store, paid := outbox.NewStore(tr).As("alice"), "paid"
		begun := time.Now()
		parkMany(t, tr, n, paid)
		t.Logf("%d committed and parked: %v", n, time.Since(begun))
		m := &market{}
		m.refused.Store(&paid)
		publish(t, tr, m, relay.Config{NoInline: true, BatchSize: 1000})

		begun = time.Now()
		first, err := store.RearmAll(redistest.Soon(t), outbox.Filter{Class: "unrouted"}, outbox.RearmOptions{Canary: 20, MaxParkedAgain: 50, Rate: rate})
		t.Logf("%+v after %v", first, time.Since(begun))
		if err != nil || first.Canary.Sent != 20 || first.Stopped != outbox.StoppedByFailures || first.Class != "http_422" || first.Rearmed >= n {
			t.Errorf("the first: %+v, %v", first, err)
		}
		second, err := store.RearmAll(redistest.Soon(t), outbox.Filter{Class: "http_422"}, outbox.RearmOptions{Canary: 20})
		if err != nil || second.Canary.ParkedAgain == 0 || second.Stopped != outbox.StoppedByCanary || second.Class != "http_422" || second.Rearmed != 20 {
			t.Errorf("the class that failed: %+v, %v", second, err)
		}
		redistest.Eventually(t, "the relay to be done", func() bool {
			c, err := store.Counts(redistest.Soon(t))
			return err == nil && c.Pending == 0
		})
		c, err := store.Counts(redistest.Soon(t))
		redistest.Must(t, err)

		m.refused.Store(nil)
		begun = time.Now()
		third, err := store.RearmAll(redistest.Soon(t), outbox.Filter{}, outbox.RearmOptions{Canary: 20})
		t.Logf("%+v after %v: %.0f a second", third, time.Since(begun), float64(third.Rearmed)/time.Since(begun).Seconds())
		if err != nil || third.Stopped != "" || third.Rearmed != int(c.Parked) || third.ParkedAgain != 0 {
			t.Errorf("after the cause was mended: %+v of %+v, %v", third, c, err)
		}
		redistest.Eventually(t, "all to be sent", func() bool {
			c, err := store.Counts(redistest.Soon(t))
			return err == nil && c.Sent == int64(n) && m.sold.Load() == int64(n)
		})
		wantCounts(t, store, outbox.Counts{Sent: int64(n)})
		audited := map[string]int{}
		for r, err := range store.Audit(redistest.Soon(t), time.Time{}) {
			redistest.Must(t, err)
			audited[r.Operation] += r.Done
		}
		if audited[first.Operation] != first.Rearmed || audited[second.Operation] != 20 || audited[third.Operation] != third.Rearmed || len(audited) != 3 {
			t.Errorf("the audit has %v", audited)
		}
	})
}

// BenchmarkRearmAll measures how many parked events one operator re-arms per second without a relay.
func BenchmarkRearmAll(b *testing.B) {
	const n = 20_000
	for b.Loop() {
		b.StopTimer()
		tr := newTransactor(b, redistest.Shared(b).Client(b))
		parkMany(b, tr, n, "paid")
		b.StartTimer()
		result, err := outbox.NewStore(tr).As("alice").RearmAll(b.Context(), outbox.Filter{}, outbox.RearmOptions{})
		if err != nil || result.Rearmed != n {
			b.Fatal(result, err)
		}
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "events/s")
}
