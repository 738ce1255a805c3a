package outbox_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

func TestCountsIncludesLeasedEventsInPending(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
		store := outbox.NewStore(tr).With(outbox.Config{OrderingKey: outbox.ByPartitionKey})
		if n, err := store.Enqueue(ctx, "a", sold("1"), sold("2"), sold("3"), sold("4", "partitionkey", "k"), sold("5", "partitionkey", "k")); n != 5 || err != nil {
			t.Fatal(n, err)
		}
		slot := tr.Keyspace().Slots()[0]
		leased, err := store.Claim(ctx, slot, outbox.Work{Limit: 2})
		must(t, err)
		if len(leased.Events) != 2 {
			t.Fatalf("%d events are leased, want 2", len(leased.Events))
		}
		counts, err := store.Counts(ctx)
		must(t, err)
		if counts.Pending != 4 || counts.Leased != 2 || counts.Waiting != 1 || counts.Parked != 0 || counts.Sent != 0 {
			t.Errorf("%+v", counts)
		}
		listed := make(map[outbox.State]int)
		for _, state := range []outbox.State{outbox.Pending, outbox.Leased, outbox.Waiting} {
			for _, err := range store.List(ctx, state, outbox.ListOptions{}) {
				must(t, err)
				listed[state]++
			}
		}
		if listed[outbox.Pending] != 2 || listed[outbox.Leased] != 2 || listed[outbox.Waiting] != 1 {
			t.Errorf("listed by state: %v", listed)
		}
	})
}
