package shard

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/test/assert"
)

func TestTransactorsAddUpTheirUseOfAPlanForAWeek(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	s := New(eval.New(client, "shop", slog.New(slog.DiscardHandler)), Constants{Namespace: "shop"})
	first, often := Plan{Alone: "a1", Batch: "b1", Does: "HSET with 3 arguments", Hits: 30, Left: 12}, Plan{Alone: "a2", Batch: "b2", Does: "INCR, 1 event", Hits: 99}
	same := Plan{Alone: "a0", Batch: "b0", Does: "as often as the first", Hits: 35}
	for _, p := range []Plan{same, first, often, {Alone: "a1", Batch: "b1", Does: first.Does, Hits: 5, Left: 13}} {
		assert.Must(t, s.NotePlan(t.Context(), s.Shard(0), p))
	}
	first.Hits, first.Left = 35, 25
	if list, err := s.Plans(t.Context(), s.Shard(0)); err != nil || !slices.Equal(list, []Plan{often, same, first}) {
		t.Errorf("%+v, %v", list, err)
	}
	if left := server.TTL(s.Shard(0).Key(keyPlans)); left > plansKept || left < plansKept-plansKept/100 {
		t.Errorf("they are kept for %v", left)
	}
}
