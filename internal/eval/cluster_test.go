package eval

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/scripted"
)

// newCluster returns a client of two scripted servers. Each serves half of the slots.
func newCluster(t *testing.T, answer func(cmd []string) any) (*redis.ClusterClient, [2]*scripted.Server) {
	t.Helper()
	var servers [2]*scripted.Server
	var slots []redis.ClusterSlot
	dialers := map[string]func(context.Context, string, string) (net.Conn, error){}
	for i := range servers {
		servers[i] = scripted.New(answer)
		addr, half := fmt.Sprintf("192.0.2.%d:6379", i+1), slot.Count/2
		servers[i].Client(t, func(o *redis.Options) { dialers[addr] = o.Dialer })
		slots = append(slots, redis.ClusterSlot{Start: i * half, End: (i+1)*half - 1, Nodes: []redis.ClusterNode{{Addr: addr}}})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return slots, nil },
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialers[addr](ctx, network, addr)
		},
		Protocol: 2, DisableIdentity: true, MaxRedirects: -1, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client, servers
}

func onCluster(t *testing.T, answer func(cmd []string) any) (*Runner, [2]*scripted.Server) {
	t.Helper()
	client, servers := newCluster(t, answer)
	return New(client, "n", slog.New(slog.DiscardHandler)), servers
}

func TestWakeUpIsSentToTheNodeOfItsChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, servers := onCluster(t, func([]string) any { return 1 })
		for n := range 4 {
			r.Wake(n)                // payloads are spread over all slots
			r.Wake(slot.Count/2 + n) // of the other node
		}
		synctest.Wait()
		for i, server := range servers {
			assert.Equal(t, len(server.Heard("spublish")), 4, "wake-ups that node %d was sent", i)
		}
	})
}

func TestNoWakeUpIsSentToAClusterWithoutShardedChannels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, servers := onCluster(t, func([]string) any { return errors.New("ERR unknown command 'spublish'") })
		for range 2 {
			r.Wake(0)
			synctest.Wait()
		}
		assert.Equal(t, len(servers[0].Heard("spublish")), 1, "attempts")
		assert.Equal(t, len(servers[0].Heard("publish"))+len(servers[1].Heard("publish")), 0, "plain wake-ups")
	})
}

func TestBodyIsSentToTheNodeOfItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, servers := onCluster(t, func([]string) any { return 1 })
		script := r.Script("commit", "return 1")
		for i := range slot.Count / 1024 {
			key := "{" + slot.Text(i*1024) + "}k"
			call := NewCall(script, []string{key}, nil)
			call.Ahead = [][]any{{"set", key, "body"}}
			r.Send(t.Context(), []*Call{call}, redis.NewCmd(t.Context(), "get", key))
			assert.NoError(t, call.Failure, "a call")
		}
		for i, server := range servers {
			assert.Equal(t, len(server.Heard("set")), 8, "bodies that node %d was sent", i)
		}
	})
}

func TestTailOfADurableCallOnAClusterHasTheErrorOfItsPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, _ := newCluster(t, func([]string) any { return 1 })
		client.AddHook(failing{})
		r := New(client, "n", slog.New(slog.DiscardHandler))
		call := NewCall(r.Script("commit", "return 1"), []string{"{a}k"}, nil)
		call.Wait = Durability{Replicas: 1, Timeout: time.Second}
		tail := redis.NewCmd(t.Context(), "get", "{a}k")
		r.Send(t.Context(), []*Call{call}, tail)
		assert.NoError(t, call.Failure, "the call")
		assert.Is(t, tail.Err(), errHook, "the tail")
	})
}

var errHook = errors.New("the hook failed")

// failing is a hook whose pipelines fail without an error of their commands.
type failing struct{}

func (failing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (failing) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return errHook }
}

func TestEachChannelOfAClusterHasItsOwnSubscription(t *testing.T) {
	t.Parallel()
	channel := func(n int) string { return "n:{" + slot.Text(n) + "}:wake" }
	slots := []int{slot.Count - 1, 0, 1023, 1024, 1}
	wake := []string{channel(512), channel(1536), channel(slot.Count - 512)}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	defer func() { _ = client.Close() }()
	plain := New(client, "n", slog.New(slog.DiscardHandler)).WakeSubscriptions(slots)
	if len(plain) != 1 || !slices.Equal(plain[0], wake) {
		t.Errorf("a single server: %q", plain)
	}
	r, _ := onCluster(t, func([]string) any { return nil })
	each := r.WakeSubscriptions(slots)
	if len(each) != len(wake) || !slices.EqualFunc(each, wake, func(list []string, channel string) bool { return len(list) == 1 && list[0] == channel }) {
		t.Errorf("a cluster: %q", each)
	}
}

func TestSubscriptionOfAClusterEndsWithItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer func(cmd []string) any
		want   error
	}{
		{"without sharded channels", func([]string) any { return errors.New("ERR unknown command 'ssubscribe'") }, ErrNoChannels},
		{"refused", func([]string) any { return errors.New("NOPERM no") }, nil},
		{"moved", func(cmd []string) any { return []any{"sunsubscribe", cmd[1], 0} }, errMoved},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, servers := onCluster(t, c.answer)
			err := r.Listen(t.Context(), []string{"c"}, func(int) {})
			if err == nil || c.want != nil && !errors.Is(err, c.want) || c.want == nil && errors.Is(err, ErrNoChannels) {
				t.Errorf("%s: %v", c.name, err)
			}
			assert.Equal(t, len(servers[0].Heard("subscribe"))+len(servers[1].Heard("subscribe")), 0, "plain subscriptions")
		})
	}
}

// listening is a client with a state that can be reloaded.
func listening(t *testing.T, answer func(cmd []string) any) (*Runner, *nodes) {
	t.Helper()
	n := &nodes{Client: scripted.New(answer).Client(t)}
	return New(n, "n", slog.New(slog.DiscardHandler)), n
}

func TestSubscriptionThatIsCutOrMovedReloadsTheCluster(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]any{"cut": scripted.ErrCut, "moved": []any{"sunsubscribe", "c", 0}} {
		synctest.Test(t, func(t *testing.T) {
			r, n := listening(t, func([]string) any { return answer })
			began := time.Now()
			err := r.Listen(t.Context(), []string{"c"}, func(int) {})
			if err == nil || errors.Is(err, errMoved) != (name == "moved") || len(n.reloads) != 1 || time.Since(began) > 0 {
				t.Errorf("%s: %v and %d reloads after %v", name, err, len(n.reloads), time.Since(began))
			}
		})
	}
}

func TestSubscriptionEndsAtOnceWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := listening(t, func(cmd []string) any { return []any{cmd[0], "c", 1} })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		err := r.Listen(ctx, []string{"c"}, func(int) {})
		if !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestSubscriptionWhosePingCannotBeSentEndsWithTheError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := listening(t, func(cmd []string) any {
			if cmd[0] == "subscribe" {
				time.Sleep(time.Hour) // and reads nothing
			}
			return []any{cmd[0], "c", 1}
		})
		if err := r.Listen(t.Context(), []string{"c"}, func(int) {}); err == nil || errors.Is(err, errSilent) {
			t.Errorf("error %v", err)
		}
	})
}

// watched is a connection that counts how often it is closed.
type watched struct {
	net.Conn

	closed *atomic.Int32
}

func (w watched) Close() error {
	w.closed.Add(1)
	return w.Conn.Close()
}

func TestConnectionOfASubscriptionIsClosedAtItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var opened, closed atomic.Int32
		server := scripted.New(func([]string) any { return []any{"sunsubscribe", "c", 0} })
		client := server.Client(t, func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				opened.Add(1)
				conn, err := dial(ctx, network, addr)
				return watched{conn, &closed}, err
			}
		})
		err := New(client, "n", slog.New(slog.DiscardHandler)).Listen(t.Context(), []string{"c"}, func(int) {})
		assert.Is(t, err, errMoved, "the subscription")
		if opened.Load() == 0 || closed.Load() < opened.Load() {
			t.Errorf("%d connections were opened, and %d closed", opened.Load(), closed.Load())
		}
	})
}
