package stack_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

// forward publishes the service's events to a stream, as its mode does, until the test ends.
func (s *service) forward(to string) {
	s.t.Helper()
	publisher, err := stream.NewPublisher(s.client, stream.PublisherConfig{Stream: to})
	redistest.Must(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer s.t.Cleanup(func() { cancel(); running.Wait() }) // registered last, so it runs first
	if s.mode.name == "scripted" {
		r, err := relay.New(s.transactor, relay.Streams(publisher), relay.Config{SweepInterval: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
		redistest.Must(s.t, err)
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				s.t.Error(err)
			}
		})
		return
	}
	for _, key := range s.streams("outbox") {
		cfg := s.subscriberConfig(key)
		cfg.Group = ""
		sub, err := stream.NewOutboxSubscriber(s.client, cfg)
		redistest.Must(s.t, err)
		events, err := sub.Subscribe(ctx)
		redistest.Must(s.t, err)
		done, err := publisher.Publish(ctx, events)
		redistest.Must(s.t, err)
		s.t.Cleanup(func() {
			<-done
			for event := range events {
				event.Release()
			}
		})
	}
}

// published waits for a number of events and returns their contents, sorted.
func (s *service) published(from string, want int) []string {
	s.t.Helper()
	var events []string
	redistest.Eventually(s.t, fmt.Sprintf("%d events of %s to be published", want, s.mode.name), func() bool {
		list, err := s.client.XRange(s.t.Context(), from, "-", "+").Result()
		redistest.Must(s.t, err)
		events = nil
		seen := make(map[string]bool) // published at least once
		for _, entry := range list {
			msg, err := stream.Unmarshal(entry.ID, entry.Values)
			redistest.Must(s.t, err)
			if !seen[msg.ID()] {
				seen[msg.ID()] = true
				events = append(events, fmt.Sprintf("%s %s %s %s %s", msg.Type(), msg.Subject(), msg.Data, msg.Destination(), msg.CorrelationID()))
			}
		}
		return len(events) >= want
	})
	slices.Sort(events)
	return events
}

// chargeCount is the number of charges for each mode. A quarter of them are fed twice.
func chargeCount() int {
	if os.Getenv("LUATX_VERIFY") != "" {
		return 8000 // 10,000 messages
	}
	return 800
}

// TestBothModesReachTheSameStateAndEvents delivers some messages twice.
func TestBothModesReachTheSameStateAndEvents(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		charges := chargesOf(chargeCount(), 12)
		fed, events := slices.Clone(charges), eventsOf(charges)
		for i, c := range charges {
			if i%4 == 0 {
				at := (i * 3) % len(fed) // before or after its first copy
				fed = slices.Insert(fed, at, c)
			}
		}
		var services []*service
		for _, m := range modes {
			s := newService(t, client, m)
			s.forward(s.name + ":events")
			s.start(newHandler(redisAccounts{client, s.keyspace}))
			s.feed(fed)
			services = append(services, s)
		}
		var published [][]string
		for _, s := range services {
			s.settled(len(fed))
			s.wantAccounts(charges, 1)
			published = append(published, s.published(s.name+":events", events))
		}
		if len(published[0]) != events || !slices.Equal(published[0], published[1]) {
			t.Errorf("%d and %d events, want %d; the first ones:\n%s\n%s",
				len(published[0]), len(published[1]), events, published[0][0], published[1][0])
		}
	})
}
