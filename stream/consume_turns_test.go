package stream

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
)

func TestPanicOfAProcessorIsAnError(t *testing.T) {
	t.Parallel()
	process := ProcessFunc(func(context.Context, *message.RawMessage) error { panic("of a Processor") })
	if err := processed(t.Context(), process, nil); err == nil || !strings.Contains(err.Error(), "of a Processor") {
		t.Errorf("%v, want the panic", err)
	}
}

// TestWaitingTurnOfConsumeReadsNext checks that the turn of Consume that waited for the reader then reads. If both turns
// released the reader instead, they would pass it to each other for a third of a second on one core before one of them reads.
func TestWaitingTurnOfConsumeReadsNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer client.Close()
		client.AddHook(server)
		s, err := NewSubscriber(client, SubscriberConfig{Stream: "s", Group: "g"})
		if err != nil {
			t.Fatal(err)
		}
		sub, err := newSubscription(t.Context(), s, 4)
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(sub)
		r.recoverOwn.Store(false)
		r.claimAt = time.Now().Add(time.Hour)
		c := &consumption{reader: r, reading: make(chan struct{}, 1)}
		c.reading <- struct{}{} // the other turn reads
		read := -1
		go func() {
			batch, err := c.next(t.Context(), nil)
			if err != nil {
				t.Error(err)
			}
			read = len(batch)
		}()
		synctest.Wait()
		if read >= 0 {
			t.Fatal("both read")
		}
		server.set(nil, "1-1")
		<-c.reading // and has found nothing
		synctest.Wait()
		if read != 1 {
			t.Errorf("%d messages, want the one that is there", read)
		}
	})
}
