package stream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/lua"

	"github.com/redis/go-redis/v9"
)

var trimScript = redis.NewScript(lua.Script("trim", nil))

// TrimAcked trims from a stream what every one of its groups has read and acknowledged, in one script, and returns how
// many entries that were. It stops at the oldest entry that a group has pending or has not read; a stream without groups
// is left alone. Exact takes it all, however long that keeps the server. Otherwise up to about 10,000 entries go at a
// time, and some hundred may stay.
//
// It serves any stream: an outbox, or one that a separate process keeps short.
func TrimAcked(ctx context.Context, client redis.UniversalClient, key string, exact bool) (int64, error) {
	n, err := trimScript.Run(ctx, client, []string{key}, trimMode(exact)).Int64()
	if err != nil {
		return 0, fmt.Errorf("stream: trim %q: %w", key, err)
	}
	return n, nil
}

// trimMode is what XADD and XTRIM take for an exact length, or for one of about the size.
func trimMode(exact bool) string {
	if exact {
		return "="
	}
	return "~"
}

// trimmer knows when streams were trimmed last.
type trimmer struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// maxTrimmed bounds what the trimmer knows of streams that are written no more.
const maxTrimmed = 1000

// due says whether a stream is to be trimmed, and takes it that it is.
func (t *trimmer) due(key string, now time.Time, interval time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.last[key]; ok && now.Sub(last) < interval {
		return false
	}
	if t.last == nil || len(t.last) >= maxTrimmed {
		t.last = map[string]time.Time{}
	}
	t.last[key] = now
	return true
}

// trimWritten trims the streams of what was written, where it is time. The messages are written whether that works or not.
func (p *Publisher) trimWritten(ctx context.Context, cmds []*redis.StringCmd) {
	if !p.cfg.TrimAcked {
		return
	}
	for _, cmd := range cmds {
		if cmd == nil || cmd.Err() != nil {
			continue
		}
		key, _ := cmd.Args()[1].(string)
		if !p.due(key, time.Now(), p.cfg.TrimInterval) {
			continue
		}
		if _, err := TrimAcked(ctx, p.client, key, p.cfg.ExactTrim); err != nil {
			p.cfg.Logger.WarnContext(ctx, "stream: not trimmed", "stream", key, "error", err)
		}
	}
}

// trim is TrimAcked for a subscriber that asks for it.
func (s *subscription) trim(ctx context.Context) {
	if !s.cfg.TrimAcked {
		return
	}
	if _, err := TrimAcked(ctx, s.client, s.cfg.Stream, false); err == nil {
		s.outage.over("trim")
	} else if ctx.Err() == nil {
		s.outage.begins("trim", err)
	}
}
