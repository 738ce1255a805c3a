package expiry

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/documented"
	"github.com/luatx/luatx/message"
)

func TestConfigsHaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, WorkerConfig{}.withDefaults(1))
}

func TestConfigsRejectValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	event := func(context.Context, Timer) (*message.Message, error) { return nil, nil }
	documented.Bounds(t, WorkerConfig{Event: event}, WorkerConfig.validate)
}

func TestPausesOfWorkersVaryByATenth(t *testing.T) {
	t.Parallel()
	pauses := make([]time.Duration, 10_000)
	for i := range pauses {
		pauses[i] = jittered(time.Second)
		if short := jittered(0); short != 0 {
			t.Fatalf("a pause of %v becomes %v", time.Duration(0), short)
		}
	}
	least, most := slices.Min(pauses), slices.Max(pauses)
	if least < 900*time.Millisecond || least > 903*time.Millisecond || most > 1100*time.Millisecond || most < 1097*time.Millisecond {
		t.Errorf("pauses of a second are %v to %v", least, most)
	}
}

func TestDecisionsHaveNames(t *testing.T) {
	t.Parallel()
	for d, want := range map[Decision]string{
		Enqueued: "enqueued", Revoked: "revoked", AlreadyEnqueued: "already enqueued", NotDue: "not due",
		0: "not decided", NotDue + 1: "not decided", full: "not decided", other: "not decided",
	} {
		if d.String() != want {
			t.Errorf("decision %d is %q, want %q", int(d), d, want)
		}
	}
}
