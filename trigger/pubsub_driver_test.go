package trigger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
)

// errMute as an answer to a ping keeps it from the server.
var errMute = errors.New("no reply")

// pinging is a connection on which pings may get no reply.
type pinging struct {
	net.Conn
	answer  func(n int64) any
	pings   *atomic.Int64
	answers chan any
}

func (c *pinging) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("ping")) {
		answer := c.answer(c.pings.Add(1))
		if answer == any(errMute) {
			return len(b), nil
		}
		c.answers <- answer
	}
	return c.Conn.Write(b)
}

// inBubbleListening runs a test in a bubble with a subscribed driver, whose server replies to each ping as a test says. It has the
// number of pings.
func inBubbleListening(t *testing.T, answer func(n int64) any, test func(t *testing.T, p *pubSub, s *scripted.Server, pings *atomic.Int64, logs *rig.Lines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		answers, pings := make(chan any, 1), new(atomic.Int64)
		s, logs := scripted.New(func(cmd []string) any {
			switch strings.ToLower(cmd[0]) {
			case "subscribe":
				return []any{"subscribe", cmd[1], 1}
			case "ping":
				return <-answers
			}
			return scripted.Status("OK")
		}), &rig.Lines{}
		client := s.Client(t, func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return &pinging{conn, answer, pings, answers}, err
			}
		})
		cfg := Config{Function: "f", Mode: ModePubSub, Channels: []string{"c"}}.withDefaults()
		p := newPubSub(link{client: client, end: func() error { return errEnd }, cfg: cfg, log: logs.Logger()})
		if err := p.Reconnect(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(t, p, s, pings, logs)
		if err := p.Close(); !errors.Is(err, errEnd) {
			t.Errorf("error is %v, want that of the end", err)
		}
	})
}

func pong(int64) any { return []any{"pong", ""} }

// published is a message as a subscriber gets it.
func published(n int64) any { return []any{"message", "c", fmt.Sprint(n)} }

// breaks waits for the end of the subscription and returns its error.
func breaks(t *testing.T, p *pubSub) error {
	t.Helper()
	for {
		if d, err := p.NextDelivery(t.Context(), time.Minute+time.Second/2); d == nil {
			return err
		}
	}
}

func TestQuietConnectionIsPingedAfter3SecondsAndKeptIfTheServerReplies(t *testing.T) {
	t.Parallel()
	inBubbleListening(t, pong, func(t *testing.T, p *pubSub, s *scripted.Server, _ *atomic.Int64, _ *rig.Lines) {
		if err := breaks(t, p); err != nil {
			t.Errorf("lost: %v", err)
		}
		want := []time.Duration{3 * time.Second, 6 * time.Second, 9 * time.Second}
		if got := s.Times("ping"); len(got) != 20 || !slices.Equal(got[:3], want) {
			t.Errorf("pinged at %v", got)
		}
	})
}

func TestConnectionIsAbandonedAfter6SecondsOfSilence(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(int64) any{"at once": nil, "after a pong": pong, "after a message": published} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heard := time.Duration(0)
			if first != nil {
				heard = 3 * time.Second
			}
			silence := func(n int64) any {
				if n == 1 && first != nil {
					return first(n)
				}
				return errMute
			}
			inBubbleListening(t, silence, func(t *testing.T, p *pubSub, _ *scripted.Server, pings *atomic.Int64, _ *rig.Lines) {
				began := time.Now()
				if err := breaks(t, p); !errors.Is(err, errSilent) || time.Since(began) != heard+6*time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				if gaps := p.Gaps(); gaps.Count != 1 || gaps.Last.From.Sub(began) != heard {
					t.Errorf("%+v, %v after the begin", gaps, gaps.Last.From.Sub(began))
				}
				if n := pings.Load(); n != 3+int64(heard/(3*time.Second)) {
					t.Errorf("%d pings", n)
				}
			})
		})
	}
}

func TestConnectionIsNotSilentWhileReceivedMessagesWaitForRoom(t *testing.T) {
	t.Parallel()
	inBubbleListening(t, published, func(t *testing.T, p *pubSub, _ *scripted.Server, _ *atomic.Int64, logs *rig.Lines) {
		time.Sleep(time.Hour)
		if gaps := p.Gaps(); gaps.Count != 0 || len(p.inbox) != 100 {
			t.Errorf("%+v, %d messages wait, want 100", gaps, len(p.inbox))
		}
		for n := range 101 {
			d, err := p.NextDelivery(t.Context(), time.Second)
			if err != nil || d == nil || string(d.Data) != fmt.Sprint(n+1) {
				t.Fatalf("%d: %v, %v", n, d, err)
			}
		}
		time.Sleep(3*time.Second + time.Millisecond)
		if err := p.Close(); !errors.Is(err, errEnd) || logs.Count("received messages discarded\" messages=1\n") != 1 {
			t.Errorf("%v, logged:\n%s", err, logs)
		}
		<-p.inbox
	})
}

func TestErrorOfASubscriptionComesBeforeReceivedMessages(t *testing.T) {
	t.Parallel()
	cut := func(n int64) any {
		if n == 1 {
			return published(n)
		}
		return scripted.ErrCut
	}
	inBubbleListening(t, cut, func(t *testing.T, p *pubSub, _ *scripted.Server, _ *atomic.Int64, logs *rig.Lines) {
		time.Sleep(time.Minute)
		if d, err := p.NextDelivery(t.Context(), time.Second); d != nil || err == nil || errors.Is(err, errSilent) {
			t.Errorf("%v, %v", d, err)
		}
		if d, err := p.NextDelivery(t.Context(), time.Second); d == nil || err != nil {
			t.Errorf("%v, %v", d, err)
		}
		if err := p.Close(); !errors.Is(err, errEnd) || logs.Count("discarded") != 0 {
			t.Errorf("%v, logged:\n%s", err, logs)
		}
	})
}

func TestOldSubscriptionsEndWhenNewOnesBegin(t *testing.T) {
	t.Parallel()
	inBubbleListening(t, pong, func(t *testing.T, p *pubSub, s *scripted.Server, _ *atomic.Int64, _ *rig.Lines) {
		for range 3 {
			if err := p.Reconnect(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := breaks(t, p); err != nil || len(s.Heard("ping")) != 20 || len(s.Heard("subscribe")) != 4 {
			t.Errorf("%v, %d pings to one connection", err, len(s.Heard("ping")))
		}
	})
}

func TestFailedSubscriptionLeavesNothingBehindAndReloadsSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := scripted.New(func(cmd []string) any {
			if cmd[1] == "{b}" {
				return scripted.ErrCut
			}
			return []any{"ssubscribe", cmd[1], 1}
		})
		client := &reloading{UniversalClient: s.Client(t)}
		cfg := Config{Function: "f", Mode: ModePubSub, Sharded: true, Channels: []string{"{a}", "{b}"}}.withDefaults()
		p := newPubSub(link{client: client, end: func() error { return nil }, cfg: cfg, log: new(rig.Lines).Logger()})
		if err := p.Reconnect(t.Context()); err == nil || client.n != 1 {
			t.Errorf("%v, looked at the slots again %d times", err, client.n)
		}
		if stats := client.PoolStats(); stats.PubSubStats.Active != 0 {
			t.Errorf("%+v", stats.PubSubStats)
		}
	})
}

func TestShardChannelsOfOneSlotShareAConnection(t *testing.T) {
	t.Parallel()
	p := &pubSub{link: link{cfg: Config{Sharded: true, Channels: []string{"{a}1", "{b}", "{a}2", "{c}", "{b}3"}}}}
	if got := fmt.Sprint(p.sets()); got != "[[{a}1 {a}2] [{b} {b}3] [{c}]]" {
		t.Errorf("%s", got)
	}
}
