package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// rawEvents returns events with the ids 0, 1, …, each changed by the given functions.
func rawEvents(n int, change ...func(i int, a message.Attributes)) []*message.RawMessage {
	events := make([]*message.RawMessage, n)
	for i := range events {
		attrs := message.Attributes{"specversion": "1.0", "id": fmt.Sprint(i), "source": "/s", "type": "sold"}
		for _, c := range change {
			c(i, attrs)
		}
		events[i] = message.NewRaw([]byte(`{}`), attrs, nil)
	}
	return events
}

func TestFuncPublishesConcurrentlyAndInOrderPerKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		inside, most := 0, 0
		order := map[string][]string{}
		publish := relay.Func(func(_ context.Context, event *message.RawMessage) error {
			mu.Lock()
			inside++
			most = max(most, inside)
			order[event.PartitionKey()] = append(order[event.PartitionKey()], event.ID())
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			inside--
			mu.Unlock()
			switch event.ID() {
			case "1", "40":
				return errors.New("refused")
			case "2":
				panic("a bug")
			}
			return nil
		}, relay.FuncConfig{Concurrency: 5})
		begun := time.Now()
		errs := publish.Publish(t.Context(), rawEvents(50, func(i int, a message.Attributes) {
			if i >= 30 {
				a["partitionkey"] = fmt.Sprint("key", i%2)
			}
		}))
		if most != 5 {
			t.Errorf("%d at a time, want 5", most)
		}
		if took := time.Since(begun); took > 12*time.Second {
			t.Errorf("50 events of a second each took %v", took)
		}
		if want := []string{"30", "32", "34", "36", "38", "40"}; !slices.Equal(order["key0"], want) || !slices.IsSorted(order["key1"]) || len(order["key1"]) != 10 {
			t.Errorf("%v", order)
		}
		for i, err := range errs {
			later := i > 40 && i%2 == 0
			if errors.Is(err, relay.ErrLater) != later || !later && (err != nil) != slices.Contains([]int{1, 2, 40}, i) {
				t.Errorf("event %d: %v", i, err)
			}
		}
	})
}

// TestFuncStopsAfterAnUnavailableError checks that an outage is not tried again for every event, and that events for which no
// time is left lose no attempt.
func TestFuncStopsAfterAnUnavailableError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		publish := relay.Func(func(ctx context.Context, _ *message.RawMessage) error {
			calls++
			time.Sleep(time.Second)
			return relay.Unavailable(errors.New("connection refused"))
		}, relay.FuncConfig{Concurrency: 1})
		for i, err := range publish.Publish(t.Context(), rawEvents(100)) {
			if !errors.Is(err, relay.ErrUnavailable) {
				t.Errorf("event %d: %v", i, err)
			}
		}
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
		slow := relay.Func(func(context.Context, *message.RawMessage) error { time.Sleep(time.Second); return nil }, relay.FuncConfig{Concurrency: 2})
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		for i, err := range slow.Publish(ctx, rawEvents(100)) {
			if i < 10 && err != nil || i >= 10 && !errors.Is(err, relay.ErrLater) {
				t.Errorf("event %d: %v", i, err)
			}
			if d, asked := message.RetryDelay(err); d != 0 || asked != (i >= 10) {
				t.Errorf("event %d is given back for %v", i, d)
			}
		}
	})
}
