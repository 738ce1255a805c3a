package eval

import (
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestFlightHasOnlyCallsWithTheSameWaitInTheirOrder(t *testing.T) {
	t.Parallel()
	durable := Durability{Replicas: 1}
	var l nodeQueue
	for _, wait := range []Durability{{}, {}, durable, durable, {}} {
		l.waiting = append(l.waiting, &Call{Wait: wait})
	}
	for _, want := range []struct {
		calls int
		wait  Durability
	}{{2, Durability{}}, {2, durable}, {1, Durability{}}, {0, Durability{}}} {
		batch := l.nextFlight()
		assert.Equal(t, len(batch), want.calls, "calls in the flight")
		for _, c := range batch {
			assert.Equal(t, c.Wait, want.wait, "what the flight waits for")
		}
	}
}
