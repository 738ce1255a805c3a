package relay_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

var errNo = errors.New("no such customer")

func TestChannelReturnsAResultForEachSettlement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := make(chan *message.RawMessage)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		forgotten := make(chan *message.RawMessage, 1)
		go func() {
			for range 7 {
				switch msg := <-events; msg.ID() {
				case "0":
					msg.Ack()
				case "1":
					msg.Nack(errNo)
				case "2":
					msg.Nack(message.Permanent(errNo))
				case "3":
					msg.Nack(relay.Unavailable(errNo))
				case "4":
					msg.Nack(nil)
				case "5":
					msg.Release()
				case "6":
					forgotten <- msg
				}
			}
		}()
		errs := relay.Channel(events, relay.ChannelConfig{}).Publish(ctx, rawEvents(8))
		if errs[0] != nil {
			t.Errorf("acked: %v", errs[0])
		}
		if !errors.Is(errs[1], errNo) || errors.Is(errs[1], relay.ErrUnavailable) || message.IsPermanent(errs[1]) {
			t.Errorf("nacked: %v", errs[1])
		}
		if !message.IsPermanent(errs[2]) || !errors.Is(errs[3], relay.ErrUnavailable) {
			t.Errorf("nacked with more to say: %v, %v", errs[2], errs[3])
		}
		if !errors.Is(errs[4], message.ErrNacked) || !errors.Is(errs[5], relay.ErrLater) {
			t.Errorf("nacked without a reason: %v; released: %v", errs[4], errs[5])
		}
		if d, asked := message.RetryDelay(errs[5]); d != 0 || !asked {
			t.Errorf("released for %v", d)
		}
		if !errors.Is(errs[6], relay.ErrUnavailable) || !errors.Is(errs[7], relay.ErrUnavailable) {
			t.Errorf("not settled: %v; not received: %v", errs[6], errs[7])
		}
		if late := <-forgotten; late.Ack() {
			t.Error("an ack that came too late counted")
		}
	})
}

func TestChannelWaitsNoLongerThanWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := make(chan *message.RawMessage, 2)
		begun := time.Now()
		for i, err := range relay.Channel(events, relay.ChannelConfig{Wait: time.Second}).Publish(t.Context(), rawEvents(50)) {
			if !errors.Is(err, relay.ErrUnavailable) {
				t.Errorf("event %d: %v", i, err)
			}
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestRelaySettlesEventsAsTheReaderOfAChannelDoes(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		events := make(chan *message.RawMessage)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := make(map[string]int)
		received := make(chan struct{})
		go func() {
			defer close(received)
			for {
				select {
				case <-ctx.Done():
					return
				case msg := <-events:
					seen[msg.ID()]++
					switch {
					case msg.ID() == "poison":
						msg.Nack(errNo)
					case msg.ID() == "never":
						msg.Nack(message.Permanent(errNo))
					case msg.ID() == "busy" && seen["busy"] < 4:
						msg.Nack(relay.Unavailable(errNo))
					default:
						msg.Ack()
					}
				}
			}
		}()
		start(t, tr, relay.Channel(events, relay.ChannelConfig{Wait: 20 * time.Second}), relay.Config{
			Attempts: 2, BackoffBase: time.Millisecond, BackoffCap: time.Millisecond, PauseCap: 5 * time.Millisecond, SweepInterval: 20 * time.Millisecond,
		})
		emit(t, tr, "a", "good", "poison", "never", "busy")
		redistest.Eventually(t, "two to be sent and two parked", func() bool { return counts(t, tr) == outbox.Counts{Sent: 2, Parked: 2} })
		cancel()
		<-received
		if seen["poison"] != 2 || seen["never"] != 1 || seen["busy"] < 4 {
			t.Errorf("%v", seen)
		}
	})
}
