package observe

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTellCallsTheObserverAndLogsItsPanic(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	got := 0
	Tell(t.Context(), logger, nil, 1)
	Tell(t.Context(), logger, func(_ context.Context, n int) { got += n }, 2)
	Tell(t.Context(), logger, func(context.Context, int) { panic("what a day") }, 3)
	if got != 2 || !strings.Contains(log.String(), "what a day") || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("got %d, log %q", got, log.String())
	}
}

func TestBothCallsEachObserverInOrder(t *testing.T) {
	t.Parallel()
	var got []int
	add := func(n int) func(context.Context, int) {
		return func(_ context.Context, m int) { got = append(got, n*m) }
	}
	if Both[int](nil, nil) != nil {
		t.Error("nobody and nobody is somebody")
	}
	Both(add(1), nil)(t.Context(), 1)
	Both(nil, add(2))(t.Context(), 1)
	Both(add(3), add(4))(t.Context(), 1)
	func() {
		defer func() { _ = recover() }()
		Both(func(context.Context, int) { panic("first") }, add(5))(t.Context(), 1)
	}()
	want := []int{1, 2, 3, 4, 5}
	for i, n := range want {
		if i >= len(got) || got[i] != n {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}
