package stack_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// lostProcess is the adapter of a process that dies when its handler has issued its commands.
type lostProcess struct {
	redisAccounts
	reached chan struct{}
	buried  chan struct{}
}

func (l lostProcess) Charge(ctx context.Context, c charge) error {
	if err := l.redisAccounts.Charge(ctx, c); err != nil {
		return err
	}
	close(l.reached)
	<-l.buried // for the server there is no difference to a process that has gone
	return errors.New("the process has died")
}

// TestGap states what the documentation of pipeline.SetNX says: where a process dies between the mark and the EXEC,
// the redelivery passes for a duplicate, and the message is lost. In the scripted mode the same sequence applies
// it, for there is no mark without its effect.
func TestGap(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, c := range []struct {
			mode    mode
			applied string
			events  int
		}{
			{modes[0], "", 0},
			{modes[1], "700", 1},
		} {
			t.Run(c.mode.name, func(t *testing.T) {
				t.Parallel()
				s := newService(t, client, c.mode)
				s.feed([]charge{{"c0", "order-1", 700}})
				bury := s.die()
				s.start(newHandler(redisAccounts{client, s.keyspace}), func(cfg *stream.SubscriberConfig) {
					cfg.MaxIdleTime, cfg.ClaimInterval = 20*time.Millisecond, 10*time.Millisecond
				})
				redistest.Eventually(t, "another process to take the message over", func() bool {
					claimed := int64(0)
					for _, sub := range s.subs {
						claimed += sub.Stats().Claimed
					}
					return claimed > 0 && s.pending() == 0
				})
				check := func(when string) {
					t.Helper()
					if got := s.account("c0").Spent; got != c.applied {
						t.Errorf("%s: spent %q, want %q", when, got, c.applied)
					}
					if got := s.waiting(); got != c.events {
						t.Errorf("%s: %d events, want %d", when, got, c.events)
					}
				}
				check("after the redelivery")
				bury()
				check("in the end")
			})
		}
	})
}

// die reads the one message as a process that dies in its handler; bury ends what is left of it.
func (s *service) die() (bury func()) {
	s.t.Helper()
	mw, err := s.mode.wire(s)
	must(s.t, err)
	repo := lostProcess{redisAccounts{s.client, s.keyspace}, make(chan struct{}), make(chan struct{})}
	router := message.NewRouter(message.PipeConfig{Logger: slog.New(slog.DiscardHandler)})
	must(s.t, router.Use(mw))
	must(s.t, router.AddHandler("charge", nil, newHandler(repo)))

	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = router.Process(context.Background(), s.takeAs("lost")) // nobody hears what became of it
	}()
	select {
	case <-repo.reached:
	case <-time.After(20 * time.Second):
		s.t.Error("the handler was not reached")
	}
	return func() {
		close(repo.buried)
		<-done
	}
}

// takeAs reads the one message of the input streams as a consumer, which keeps it.
func (s *service) takeAs(consumer string) *message.Message {
	ctx := context.Background()
	for _, key := range s.streams("orders") {
		if err := s.client.XGroupCreateMkStream(ctx, key, "billing", "0").Err(); err != nil {
			s.t.Error(err)
		}
		read, err := s.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "billing", Consumer: consumer, Streams: []string{key, ">"}, Block: -1}).Result()
		if err != nil || len(read) == 0 {
			continue
		}
		entry := read[0].Messages[0]
		raw, err := stream.Unmarshal(entry.ID, entry.Values)
		if err != nil {
			s.t.Error(err)
			return nil
		}
		msg := message.Copy(raw, any(raw.Data))
		msg.SetAcking(message.NewAckingFrom(message.AckingConfig{
			Source: message.Source{Stream: key, Group: "billing", Consumer: consumer, Entry: entry.ID},
		}))
		return msg
	}
	s.t.Error("there is no message")
	return nil
}
