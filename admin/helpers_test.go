package admin_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/message"
)

// everybody may do all, as alice.
func everybody(*http.Request) (admin.Identity, error) {
	return admin.Identity{Name: "alice", May: admin.MayPurge, Payloads: true}, nil
}

// till is where events are published.
type till struct {
	mu  sync.Mutex
	ids []string
}

func (l *till) take(e *message.RawMessage, refuse bool) error {
	if refuse {
		return message.Permanent(errors.New("no such bank"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, e.ID())
	return nil
}

func (l *till) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	sorted := slices.Clone(l.ids)
	slices.Sort(sorted)
	return sorted
}

// running runs what ends with its context, until stop or the end of the test.
func running(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// lines is a log to look into.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
