package relay_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
)

// settle settles one event, and returns what was done.
func settle(t testing.TB, tr *luatx.Transactor, home shard.Shard, id, what, lease string) (string, error) {
	t.Helper()
	settled, err := link.Of(tr).Scripts.Settle(t.Context(), home, shard.Settling{
		Attempts: 5, Base: time.Second, Cap: time.Minute, Retention: time.Hour,
	}, []shard.Settlement{{ID: id, What: what, Lease: lease}})
	if err != nil {
		return "", err
	}
	return settled.Done[0], nil
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

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// count is how many lines hold the text.
func (l *lines) count(text string) (n int) {
	for line := range strings.Lines(l.text()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
