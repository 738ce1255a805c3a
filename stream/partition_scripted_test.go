package stream_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/scripted"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// inBubblePartitioned runs a test with the only member of a group. Its only partition has one entry, which is delivered again until it is
// acknowledged.
func inBubblePartitioned(t *testing.T, cfg stream.PartitionedConfig, test func(t *testing.T, s subscribed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var deliveries atomic.Int64
		var acked atomic.Bool
		server := scripted.New(func(cmd []string) any {
			switch cmd[0] {
			case "lease":
				return 1
			case "members":
				return []any{cmd[5]}
			case "partition":
				if acked.Load() {
					return []any{"none", "1-0"}
				}
				if n := deliveries.Add(1); n > 1 {
					return []any{"old", "1-0", int(n), []any{"data", "x"}}
				}
				return []any{"new", []any{[]any{"1-0", []any{"data", "x"}}}}
			case "xack":
				acked.Store(true)
				return 1
			case "xread":
				<-time.After(time.Second)
				return nil
			}
			return scripted.Status("OK")
		}, "lease", "members", "partition")
		cfg.Stream, cfg.Group, cfg.Logger = "s", "g", (&recorder{}).logger()
		sub, err := stream.NewPartitionedSubscriber(server.Client(t), luatx.Partitions(1), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		messages, err := sub.Subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		test(t, subscribed{Server: server, messages: messages, stop: cancel})
		cancel()
		time.Sleep(time.Hour)
		if msg, open := <-messages; open {
			t.Errorf("%s is handed out at the end", msg.ID())
		}
	})
}

func TestPartitionReadsANackedMessageAgainAfterItsDelay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause error
		want  []time.Duration
	}{
		"that its error requests":      {message.RetryAfter(errRefused, 10*time.Second), []time.Duration{0, 10 * time.Second, 20 * time.Second}},
		"of MaxIdleTime if it refuses": {message.Permanent(errRefused), []time.Duration{0, 40 * time.Second, 80 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := stream.PartitionedConfig{SubscriberConfig: stream.SubscriberConfig{MaxIdleTime: 40 * time.Second}}
			inBubblePartitioned(t, cfg, func(t *testing.T, s subscribed) {
				for range 2 {
					s.next(t).Nack(c.cause)
				}
				s.next(t)
				if got := s.Times("partition"); !slices.Equal(got, c.want) {
					t.Errorf("read at %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestDelaysOfAMessageOfAPartitionThatIsNackedAgainAndAgainDouble(t *testing.T) {
	t.Parallel()
	cfg := stream.PartitionedConfig{SubscriberConfig: stream.SubscriberConfig{NackBackoff: message.Backoff{Base: time.Millisecond, Max: time.Hour}}}
	inBubblePartitioned(t, cfg, func(t *testing.T, s subscribed) {
		wantDoubling(t, func() { s.next(t).Nack(errRefused) })
		s.next(t).Ack()
	})
}

func TestPartitionsAreReleasedAfterShutdownTimeoutThoughAMessageIsNotSettled(t *testing.T) {
	t.Parallel()
	for settled, most := range map[bool]time.Duration{true: 3 * time.Second, false: 7 * time.Second} {
		cfg := stream.PartitionedConfig{SubscriberConfig: stream.SubscriberConfig{ShutdownTimeout: 7 * time.Second}}
		inBubblePartitioned(t, cfg, func(t *testing.T, s subscribed) {
			msg, began := s.next(t), time.Now()
			s.stop()
			if settled {
				time.Sleep(most)
				msg.Ack()
			}
			if _, open := <-s.messages; open || time.Since(began) != most {
				t.Errorf("ended %v after the stop, want %v", time.Since(began), most)
			}
			leases := s.Heard("lease")
			if last := strings.Join(leases[len(leases)-1].Cmd[4:5], " "); last != "free" || fmt.Sprint(s.Times("members")) == "[0s]" {
				t.Errorf("the last request is %s:\n%s", last, scripted.Words(leases))
			}
		})
	}
}
