package admin_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/outbox"
)

func TestTailListsNewParkedAndSentEventsOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, cancel := context.WithCancel(redistest.Soon(t))
		tr, op := admintest.Service(t, client, 4)
		slot, err := op.Outbox().Slot("b")
		redistest.Must(t, err)
		publish := func(id string) {
			t.Helper()
			admintest.Emit(t, tr, "b", id)
			_, err := op.Outbox().Sent(ctx, slot, outbox.Work{}, id)
			redistest.Must(t, err)
		}
		publish("before")
		at := client.Time(ctx).Val().UnixMilli()
		redistest.Eventually(t, "the clock to go on", func() bool { return client.Time(ctx).Val().UnixMilli() > at })

		news := make(chan string)
		go func() {
			defer close(news)
			for e, err := range op.Tail(ctx, time.Millisecond) {
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				select {
				case news <- string(e.State) + " " + e.ID:
				case <-ctx.Done():
				}
			}
		}()
		reported := map[string]int{}
		begun := false
		for i := 0; !begun; i++ { // until it looks
			publish(fmt.Sprint("warm", i))
			select {
			case text := <-news:
				reported[text]++
				begun = true
			case <-time.After(10 * time.Millisecond):
			}
		}
		publish("2")
		admintest.Emit(t, tr, "a", "3")
		park(t, tr, 1)
		for reported["sent 2"] == 0 || reported["parked 3"] == 0 {
			text, ok := <-news
			if !ok {
				t.Fatalf("reported only %v", reported)
			}
			reported[text]++
		}
		publish("4")
		for reported["sent 4"] == 0 {
			reported[<-news]++
		}
		cancel()
		for range news {
		}
		for text, n := range reported {
			if n != 1 || text == "sent before" {
				t.Errorf("%d times: %s", n, text)
			}
		}
	})
}

func TestTailReadsBackToItsLastCompleteQuery(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	now := time.Now()
	server.SetTime(now)
	tr, op := admintest.Service(t, client, 1)
	slot := tr.Keyspace().Slots()[0]
	publish := func(id string) {
		t.Helper()
		admintest.Emit(t, tr, "a", id)
		_, err := op.Outbox().Sent(redistest.Soon(t), slot, outbox.Work{}, id)
		redistest.Must(t, err)
	}
	refuser := rig.Refuse(client)
	next, stop := iter.Pull2(op.Tail(redistest.Soon(t), time.Millisecond))
	defer stop()
	yields := func(when, id string) {
		t.Helper()
		if e, err, ok := next(); !ok || err != nil || e.ID != id {
			t.Fatalf("%s, Tail yields the event %q, %v, %t; want %q", when, e.ID, err, ok, id)
		}
	}
	publish("1")
	yields("at first", "1")
	server.SetTime(now.Add(time.Second))
	publish("2")
	server.SetTime(now.Add(time.Minute))
	yields("after a minute in which the reader did not ask", "2")
	server.SetTime(now.Add(2 * time.Minute))
	publish("3")
	for n := 1; n <= 3; n++ { // the commands of a query: TIME, and one for parked and one for sent events
		server.SetTime(now.Add(time.Duration(2+n) * time.Minute))
		refuser.Arm(n)
		if e, err, _ := next(); !errors.Is(err, rig.ErrRefused) || e.ID != "" {
			t.Fatalf("if the server refuses command %d, Tail yields the event %q, %v", n, e.ID, err)
		}
		if n == 2 {
			yields("after the error of the parked events", "3")
			publish("4")
			server.SetTime(now.Add(5 * time.Minute))
		}
	}
	server.SetTime(now.Add(9 * time.Minute))
	yields("after minutes in which queries failed", "4")
}

func TestTailRejectsAnIntervalOfZero(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, op := admintest.Service(t, client, 1)
	for _, err := range op.Tail(t.Context(), 0) {
		if err == nil {
			t.Error("no error")
		}
		return
	}
	t.Error("Tail yields no error")
}
