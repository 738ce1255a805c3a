package eval

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/slot"
)

// oldServer is a hook that simulates a server without sharded channels. It refuses the first two SPUBLISH together.
type oldServer struct {
	both sync.WaitGroup
	mu   sync.Mutex
	told []int // the slots of PUBLISH
	all  chan struct{}
}

func (s *oldServer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *oldServer) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *oldServer) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "spublish" {
			s.both.Done()
			s.both.Wait()
			return answer("ERR unknown command `spublish`")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, cmd := range cmds {
			s.told = append(s.told, cmd.Args()[2].(int))
		}
		if len(s.told) == 2 {
			close(s.all)
		}
		return nil
	}
}

func TestWakeUpsOfTwoChannelsReachAServerWithoutShardedChannels(t *testing.T) {
	t.Parallel()
	s := &oldServer{all: make(chan struct{})}
	s.both.Add(2)
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	defer func() { _ = client.Close() }()
	client.AddHook(s)
	r := New(client, "n", slog.New(slog.DiscardHandler))
	first, second := 0, slot.Count-1
	r.Wake(first)
	r.Wake(second)
	select {
	case <-s.all:
	case <-time.After(30 * time.Second):
		t.Fatal("one of the wake-ups was lost")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.told)
	if !slices.Equal(s.told, []int{first, second}) {
		t.Errorf("the slots %v were told, want %d and %d", s.told, first, second)
	}
}

func TestChannelHoldsTheWakeUpsOf256Slots(t *testing.T) {
	t.Parallel()
	var w wakes
	w.channels[0].flying = true
	for n := range 300 {
		w.add(n)
	}
	if held := len(w.channels[0].slots); held != 256 {
		t.Errorf("%d wake-ups are held", held)
	}
}
