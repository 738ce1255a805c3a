package outbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

// TestSettlementUnderAnEarlierLeaseChangesNothing matters because a lease is the time of its end. Two leases must differ even
// if an event is returned and claimed again within one millisecond, or if the server's clock goes back.
func TestSettlementUnderAnEarlierLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
	scripts, start := link.Of(tr).Scripts, time.Now().Truncate(time.Second)
	home := scripts.Shard(tr.Keyspace().Slots()[0])
	server.SetTime(start.Add(-time.Hour))
	redistest.Must(t, emit(tr, "a", "1"))
	settle := func(lease, what string) string {
		t.Helper()
		settled, err := scripts.Settle(ctx, home, shard.Settling{Attempts: 1000, Retention: time.Hour}, []shard.Settlement{{ID: "1", What: what, Lease: lease}})
		redistest.Must(t, err)
		return settled.Done[0]
	}
	var leases []string
	for i, at := range slices.Concat(slices.Repeat([]time.Duration{0}, 20), slices.Repeat([]time.Duration{-time.Hour}, 20)) {
		server.SetTime(start.Add(at))
		claim, err := scripts.Claim(ctx, home, shard.Claiming{Limit: 10, Lease: time.Minute, Attempts: 1000})
		redistest.Must(t, err)
		if len(claim.Events) != 1 || slices.Contains(leases, claim.Lease) {
			t.Fatalf("claim %d: %+v; the leases before: %v", i, claim, leases)
		}
		for _, earlier := range leases {
			for _, what := range []string{"back", "failed", "parked", "hold"} {
				assert.Equal(t, settle(earlier, what), "stale", "%s under an earlier lease", what)
			}
		}
		leases = append(leases, claim.Lease)
		server.SetTime(start.Add(-time.Hour)) // so that the event is due at both times
		assert.Equal(t, settle(claim.Lease, "back"), "back", "given back under the lease")
	}
}

// TestNeighbouringLeasesDiffer has leases whose fractions are next to each other, and those where the fractions begin again.
func TestNeighbouringLeasesDiffer(t *testing.T) {
	t.Parallel()
	for before, later := range map[string]time.Duration{"0": 0, "511": 0, "1023": time.Millisecond} {
		server, client := redistest.Mini(t)
		tr, start := newTransactor(t, client, onePartition), time.Now().Truncate(time.Second)
		scripts := link.Of(tr).Scripts
		home := scripts.Shard(tr.Keyspace().Slots()[0])
		server.SetTime(start)
		redistest.Must(t, emit(tr, "a", "1", "2"), server.Set(home.Key("seq"), before))
		var leases []string
		for range 2 {
			claim, err := scripts.Claim(redistest.Soon(t), home, shard.Claiming{Limit: 1, Lease: time.Minute, Attempts: 1000})
			redistest.Must(t, err)
			leases = append(leases, claim.Lease)
			server.SetTime(start.Add(later))
		}
		if leases[0] == leases[1] {
			t.Errorf("behind number %s: %v", before, leases)
		}
	}
}

func TestClaimReturnsWhenTheNextEventIsDueAndMarksTheShardIfThatIsLater(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now       []string      // events that are due now
		scheduled time.Duration // until an event that is due later; 0: there is none
		limit     int
		want      time.Duration // within a millisecond, because leases have fractions of it
		idle      bool
	}{
		"nothing":                    {nil, 0, 10, -1, true},
		"a scheduled one":            {nil, time.Hour, 10, time.Hour, true},
		"a leased one":               {[]string{"1"}, 0, 10, time.Minute, true},
		"leased one before another":  {[]string{"1"}, time.Hour, 10, time.Minute, true},
		"scheduled one before lease": {[]string{"1"}, time.Second, 10, time.Second, true},
		"one beyond the limit":       {[]string{"1", "2"}, 0, 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := redistest.Mini(t)
			start := time.Now().Truncate(time.Second)
			server.SetTime(start)
			y := newYard(t, client)
			y.emit("t", "", "", append(c.now, "sent")...)
			y.settle("sent", "", "", "", "sent")
			if c.scheduled > 0 {
				_, err := y.tr.Enqueue(redistest.Soon(t), "a", luatx.Event{ID: "later", Body: []byte("{}"), At: start.Add(c.scheduled)})
				redistest.Must(t, err)
			}
			scripts := link.Of(y.tr).Scripts
			home, claims := scripts.Shard(y.slot), 2
			if !c.idle {
				claims = 1
			}
			for range claims {
				claim, err := scripts.Claim(redistest.Soon(t), home, shard.Claiming{Limit: c.limit, Lease: time.Minute, Attempts: 10})
				redistest.Must(t, err)
				if claim.Next < c.want || claim.Next > c.want+time.Millisecond {
					t.Errorf("the next event is due in %v, want %v", claim.Next, c.want)
				}
				if idle := len(server.HGet(home.Key("counts"), "bytes")) > 15; idle != c.idle {
					t.Errorf("idle: %t, want %t", idle, c.idle)
				}
			}
		})
	}
}

func TestShortLeaseMakesNoSmallerBatches(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", numbered(100)...)
		scripts, ctx := link.Of(y.tr).Scripts, redistest.Soon(t)
		home := scripts.Shard(y.slot)
		for _, id := range numbered(100) {
			redistest.Must(t, client.ZAdd(ctx, home.Key("pending"), redis.Z{Score: -1e13 + 1, Member: id}).Err()) // its lease ended in 1970
		}
		claim, err := scripts.Claim(ctx, home, shard.Claiming{Limit: 100, Lease: time.Millisecond, Attempts: 10})
		redistest.Must(t, err)
		assert.Equal(t, len(claim.Events), 25, "events at the second attempt")
	})
}
