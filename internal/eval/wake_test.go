package eval

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/scripted"
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

func TestServerThatIsKnownToBeOldIsToldPlainly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := scripted.New(func(cmd []string) any {
			if cmd[0] == "spublish" {
				return errors.New("ERR unknown command 'spublish'")
			}
			return 1
		})
		client := server.Client(t)
		for _, known := range []bool{true, false} {
			before := len(server.Heard("publish"))
			r := New(client, "n", slog.New(slog.DiscardHandler))
			r.WakePlainly(known)
			for range 3 {
				r.Wake(7)
				synctest.Wait()
			}
			assert.Equal(t, len(server.Heard("publish"))-before, 3, "plain wake-ups of a server that is known to be old: %t", known)
		}
		assert.Equal(t, len(server.Heard("spublish")), 1, "attempts on the other one")
		for _, heard := range server.Heard("publish") {
			assert.Equal(t, strings.Join(heard.Cmd[1:], " "), "n:{"+slot.Text(512)+"}:wake 7", "a wake-up")
		}
	})
}

func TestDeniedWakeUpsRestForAMinuteAndAreLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		answers := []any{errors.New("NOPERM no"), errors.New("LOADING x"), 1, errors.New("NOPERM no"), 1}
		server := scripted.New(func([]string) any {
			answer := answers[0]
			answers = answers[1:]
			return answer
		})
		r := New(server.Client(t), "n", slog.New(slog.NewTextHandler(&lines, nil)))
		wake := func() int {
			r.Wake(7)
			synctest.Wait()
			return len(server.Heard("spublish"))
		}
		assert.Equal(t, wake(), 1, "wake-ups")
		time.Sleep(time.Minute - time.Nanosecond)
		assert.Equal(t, wake(), 1, "wake-ups within a minute")
		time.Sleep(time.Nanosecond)
		assert.Equal(t, wake(), 2, "wake-ups after a minute")
		assert.Equal(t, wake(), 3, "wake-ups after an error that passes")
		assert.Equal(t, wake(), 4, "wake-ups after one that was heard")
		assert.Equal(t, wake(), 4, "wake-ups after the second denial")
		assert.Equal(t, strings.Count(lines.String(), "wake-up failed"), 1, "warnings")
		assert.Equal(t, len(server.Heard("publish")), 0, "plain wake-ups")
	})
}

func TestChannelHasOneRoundTripAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := scripted.New(scripted.Late(time.Second, 1))
		r := New(server.Client(t), "n", slog.New(slog.DiscardHandler))
		for n := range 3 {
			r.Wake(n)
			synctest.Wait()
		}
		assert.Equal(t, len(server.Heard("spublish")), 1, "wake-ups under way")
		time.Sleep(time.Hour)
		assert.Equal(t, len(server.Heard("spublish")), 3, "wake-ups")
	})
}
