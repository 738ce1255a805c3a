package outbox_test

import (
	"slices"
	"testing"
	"time"

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
