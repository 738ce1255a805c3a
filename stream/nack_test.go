package stream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

var errBusy = errors.New("busy")

func TestNackedMessageIsRedeliveredOnAQuietStream(t *testing.T) {
	t.Parallel()
	for _, places := range []int{1, 3} {
		f := shared(t)
		f.add(t, "a")
		cfg := f.config()
		cfg.MaxInFlight, cfg.BlockTimeout, cfg.ClaimInterval = places, 4*time.Second, time.Hour
		sub := f.subscribe(t, cfg)
		msg := sub.next(t)
		begun := time.Now()
		for range 5 {
			msg.Nack(errBusy)
			msg = sub.next(t)
			wantData(t, msg, "a")
		}
		// With one place the reader cannot wait during the delivery. With more places it does, and must not delay the redelivery.
		if took := time.Since(begun); took > cfg.BlockTimeout/2 {
			t.Errorf("%d places: five redeliveries took %v", places, took)
		}
		msg.Ack()
		f.wantPending(t, 0)
		if got := sub.Stats().Redelivered; got != 5 {
			t.Errorf("%d redelivered, want 5", got)
		}
		f.add(t, "end") // so that the reader stops waiting
		sub.next(t).Ack()
		sub.cancel()
		f.add(t, "wake")
	}
}

func TestNackedMessageIsRedeliveredAfterItsDelay(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "a", "b")
	sub := f.subscribe(t, f.config())
	a, b := sub.next(t), sub.next(t)
	begun := time.Now()
	a.Nack(message.RetryAfter(errBusy, 300*time.Millisecond))
	b.Nack(message.RetryAfter(errBusy, 0))
	wantData(t, sub.next(t), "b")
	f.add(t, "c")
	wantData(t, sub.next(t), "c") // a does not hold up c
	wantData(t, sub.next(t), "a")
	if took := time.Since(begun); took < 300*time.Millisecond {
		t.Errorf("came again after %v, want 300 ms at least", took)
	}
}

func TestNackedEntryGoesToOthersAfterSubscriptionEnds(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client)
		f.add(t, "a", "b")
		cfg := f.config()
		cfg.MaxIdleTime, cfg.ClaimInterval = time.Hour, 20*time.Millisecond
		first := f.subscribe(t, cfg)
		a, b := first.next(t), first.next(t)
		begun := time.Now()
		a.Nack(message.RetryAfter(errBusy, time.Second))
		first.stop()
		b.Nack(message.RetryAfter(errBusy, 0))
		second := f.subscribe(t, cfg)
		for _, want := range []string{"b", "a"} {
			msg := second.next(t)
			wantData(t, msg, want)
			msg.Ack()
		}
		if took := time.Since(begun); took < 900*time.Millisecond {
			t.Errorf("it came again after %v, want a second", took)
		}
		f.wantPending(t, 0)
	})
}

func TestFailingMessagesDoNotStopOthers(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for range 20 {
		f.add(t, "bad")
	}
	cfg := f.config()
	cfg.MaxInFlight = 1
	cfg.NackBackoff = message.Backoff{Base: time.Nanosecond, Max: time.Nanosecond} // always due
	sub := f.subscribe(t, cfg)
	for range 40 {
		sub.next(t).Nack(errBusy)
	}
	f.add(t, "good")
	for n := 0; ; n++ {
		msg := sub.next(t)
		if string(msg.Data) == "good" {
			msg.Ack()
			return
		}
		if n > 100 {
			t.Fatal("the good one does not come")
		}
		msg.Nack(errBusy)
	}
}

func TestNackedEntryThatAnotherClaimedIsNotRedelivered(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ids := f.add(t, "a", "b")
	sub := f.subscribe(t, f.config())
	a, b := sub.next(t), sub.next(t)
	a.Nack(message.RetryAfter(errBusy, 100*time.Millisecond))
	b.Nack(message.RetryAfter(errBusy, 101*time.Millisecond))
	redistest.Must(t, f.client.XClaimJustID(t.Context(), &redis.XClaimArgs{Stream: f.key, Group: "shop", Consumer: "other", Messages: ids[:1]}).Err())
	wantData(t, sub.next(t), "b")
	f.logs.want(t, "stream: nacked entry claimed by another consumer", 1)
	for _, p := range f.pending(t) {
		if p.ID == ids[0] && p.Consumer != "other" {
			t.Errorf("%s is pending for %s, want the one that claimed it", p.ID, p.Consumer)
		}
	}
}

func TestRefusedMessageIsRedeliveredAfterMaxIdleTime(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "a")
	cfg := f.config()
	cfg.MaxIdleTime = 300 * time.Millisecond
	sub := f.subscribe(t, cfg)
	begun := time.Now()
	sub.next(t).Nack(message.Permanent(errBusy))
	f.logs.want(t, "stream: message refused", 1)
	f.wantPending(t, 1)
	wantData(t, sub.next(t), "a")
	if took := time.Since(begun); took < cfg.MaxIdleTime {
		t.Errorf("came again after %v, want %v at least", took, cfg.MaxIdleTime)
	}
	if got := sub.Stats(); got.Claimed != 1 || got.Redelivered != 0 {
		t.Errorf("stats are %+v, want it claimed", got)
	}
}

func TestMalformedEntryDoesNotAffectItsBatch(t *testing.T) {
	t.Parallel()
	for name, unmarshal := range map[string]func(string, map[string]any) (*message.RawMessage, error){
		"error": func(string, map[string]any) (*message.RawMessage, error) { return nil, message.ErrDecode },
		"panic": func(string, map[string]any) (*message.RawMessage, error) { panic("no") },
		"nil":   func(string, map[string]any) (*message.RawMessage, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ids := f.add(t, "a", "bad", "b")
			cfg := f.config()
			cfg.MaxIdleTime, cfg.MaxInFlight = 200*time.Millisecond, 3
			cfg.Unmarshal = func(id string, values map[string]any) (*message.RawMessage, error) {
				if id == ids[1] {
					return unmarshal(id, values)
				}
				return message.NewRaw([]byte(values["data"].(string)), nil, nil), nil
			}
			sub := f.subscribe(t, cfg)
			begun := time.Now()
			for _, want := range []string{"a", "b"} {
				msg := sub.next(t)
				wantData(t, msg, want)
				msg.Ack()
			}
			f.wantPending(t, 1)
			eventually(t, func() bool { return sub.Stats().Malformed >= 3 }, func() string { return "not looked at again" })
			if took := time.Since(begun); took < 2*cfg.MaxIdleTime {
				t.Errorf("three times within %v, want %v apart", took, cfg.MaxIdleTime)
			}
			for range 6 {
				f.add(t, "c")
				sub.next(t).Ack() // its place is released
			}
		})
	}
}
