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

// TrimAcked trims the entries of a stream that every one of its groups has read and acknowledged, in one script. It returns
// the number of trimmed entries. It stops at the oldest entry that is pending in a group or that a group has not read. It
// does not trim a stream without groups. If exact is set, it trims all such entries, however long that occupies the server.
// Otherwise, it trims up to about 10,000 entries at a time, and some hundred may stay.
//
// It works on any stream, including an outbox. It returns an error if the server does not run the script or ctx ends.
func TrimAcked(ctx context.Context, client redis.UniversalClient, key string, exact bool) (int64, error) {
	n, err := trimScript.Run(ctx, client, []string{key}, trimMode(exact)).Int64()
	if err != nil {
		return 0, fmt.Errorf("stream: trim %q: %w", key, err)
	}
	return n, nil
}

// trimMode returns the argument of XADD and XTRIM for an exact or an approximate length.
func trimMode(exact bool) string {
	if exact {
		return "="
	}
	return "~"
}

// trimmer records when streams were last trimmed.
type trimmer struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// maxTrimmed bounds the number of streams that the trimmer remembers.
const maxTrimmed = 1000

// due reports whether a stream is to be trimmed, and records that it is.
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

// trimWritten trims the written streams whose interval is over. The messages are written whether that works or not.
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
			p.cfg.Logger.WarnContext(ctx, "stream: trim failed", "stream", key, "error", err)
		}
	}
}

// trim calls TrimAcked if the subscriber is configured to.
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
