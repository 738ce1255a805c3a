package repair_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/repair"
)

func TestFixForgetsTheNameOfALostLargeBody(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newShop(t, client)
		s.furnish(t)
		for _, command := range slices.Concat(largeEvent, [][]any{{"DEL", "@body:n1"}}) {
			s.damage(t, command)
		}
		got := slices.DeleteFunc(named(t, newWorker(t, s.tr, repair.Config{}).Fix(redistest.Soon(t))), ofCounts)
		if want := []string{"lost entries/big", "misplaced pending/big", "unindexed parked/big"}; !slices.Equal(got, want) {
			t.Errorf("fixed %q, want %q", got, want)
		}
		if n := client.HLen(redistest.Soon(t), s.key("bodies")).Val(); n != 0 {
			t.Errorf("%d names are known", n)
		}
	})
}

func TestLargeBodyIsKeptEvenInItsLastMillisecond(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	s := newShop(t, client)
	s.furnish(t)
	for _, command := range largeEvent {
		s.damage(t, command)
	}
	server.SetTTL(s.key("body:n1"), time.Millisecond/2)
	got := slices.DeleteFunc(named(t, newWorker(t, s.tr, repair.Config{}).Fix(redistest.Soon(t))), ofCounts)
	if want := []string{"value body/big"}; !slices.Equal(got, want) || server.TTL(s.key("body:n1")) != 0 {
		t.Errorf("fixed %q, want %q; %v are left", got, want, server.TTL(s.key("body:n1")))
	}
}
