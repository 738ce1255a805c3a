package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/piped"
	"github.com/luatx/luatx/internal/producer"
	"github.com/luatx/luatx/message"
)

var windowScript = redis.NewScript(lua.Script("window", nil))

const (
	// idsOfProducer is the number of ids that a stream remembers for each producer: the most that Redis allows.
	idsOfProducer = 10_000
	// checkWindows is how long the reply of a server about a stream is valid. The stream may be deleted, or the server
	// replaced.
	checkWindows = time.Minute
	// loadScript is the number of attempts to load the script while others may flush the scripts.
	loadScript = 3
	// maxWindows bounds the number of streams that a Publisher remembers.
	maxWindows = 10_000
)

// windows records which streams recognize messages that are written again.
type windows struct {
	mu     sync.Mutex
	known  map[string]window
	denied sync.Once // for the log
}

type window struct {
	at   time.Time
	once bool
}

func (w *windows) of(key string, now time.Time) (once, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.known[key]
	return found.once, ok && now.Sub(found.at) < checkWindows
}

func (w *windows) set(key string, once bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.known[key]; w.known == nil || !ok && len(w.known) >= maxWindows {
		w.known = map[string]window{}
	}
	w.known[key] = window{time.Now(), once}
}

// producerOf returns the producer by which a stream recognizes a message, or "" to add the message in any case.
func (p *Publisher) producerOf(ctx context.Context, msg *message.RawMessage) string {
	if p.cfg.IdempotencyWindow < 0 {
		return ""
	}
	if p.cfg.Producer != nil {
		return p.cfg.Producer(msg)
	}
	return producer.Of(ctx, msg, p.cfg.IdempotencyWindow)
}

// The command is XADD key IDMP producer id …
const (
	idmpAt  = 2
	idmpEnd = 5
)

func isIdempotent(args []any) bool { return len(args) > idmpEnd && args[idmpAt] == "idmp" }

func withoutIdempotence(args []any) []any { return slices.Delete(args, idmpAt, idmpEnd) }

// settleIdempotence removes IDMP from the commands for streams that do not support it. If the server does not reply, the
// message gets an error and its command becomes nil, because a write without IDMP could add the message twice.
func (p *Publisher) settleIdempotence(ctx context.Context, adds [][]any, errs []error) {
	now := time.Now()
	var unknown []string
	for _, args := range adds {
		if !isIdempotent(args) {
			continue
		}
		key, _ := args[1].(string)
		if _, known := p.windows.of(key, now); !known && !slices.Contains(unknown, key) {
			unknown = append(unknown, key)
		}
	}
	failed := p.openWindows(ctx, unknown)
	for i, args := range adds {
		if !isIdempotent(args) {
			continue
		}
		key, _ := args[1].(string)
		if err := failed[key]; err != nil {
			adds[i], errs[i] = nil, fmt.Errorf("stream: set the idempotency window of %q: %w", key, err)
		} else if once, _ := p.windows.of(key, now); !once {
			adds[i] = withoutIdempotence(args)
		}
	}
}

// openWindows sets the windows of streams in one pipeline and records which streams support them. It returns the errors of
// streams for which it does not know.
func (p *Publisher) openWindows(ctx context.Context, keys []string) map[string]error {
	if len(keys) == 0 {
		return nil
	}
	cmds := p.runWindow(ctx, keys)
	for range loadScript {
		if !slices.ContainsFunc(cmds, func(cmd *redis.Cmd) bool { return isUnloaded(cmd.Err()) }) {
			break
		}
		_ = windowScript.Load(ctx, p.client).Err() // users of relays may not run EVAL; if it fails, so does the next run
		cmds = p.runWindow(ctx, keys)
	}
	failed := map[string]error{}
	for i, cmd := range cmds {
		reply, err := cmd.StringSlice()
		switch {
		case err != nil && !isDenial(err):
			failed[keys[i]] = err
			continue
		case err != nil:
			p.logDenied(ctx, keys[i], err)
		case len(reply) > 1:
			p.logDenied(ctx, keys[i], errors.New(reply[1]))
		}
		p.windows.set(keys[i], err == nil && len(reply) == 1 && reply[0] == "once")
	}
	return failed
}

func (p *Publisher) runWindow(ctx context.Context, keys []string) []*redis.Cmd {
	pipe, cmds := p.client.Pipeline(), make([]*redis.Cmd, len(keys))
	for i, key := range keys {
		cmds[i] = windowScript.EvalSha(ctx, pipe, []string{key}, seconds(p.cfg.IdempotencyWindow), idsOfProducer)
	}
	_, _ = piped.Exec(ctx, pipe) // each command has its own error
	return cmds
}

// seconds rounds up, so that the window is at least as long as configured.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func isUnloaded(err error) bool { return group.HasCode(err, "NOSCRIPT") }

// isDenial reports whether a server, or a proxy in front of it, does not let this user load or run the script at all.
// Temporary failures of a server have other codes.
func isDenial(err error) bool {
	return isUnloaded(err) || group.HasCode(err, "NOPERM") || group.HasCode(err, "ERR ")
}

func (p *Publisher) logDenied(ctx context.Context, key string, err error) {
	p.windows.denied.Do(func() {
		p.cfg.Logger.WarnContext(ctx, "stream: idempotency window denied", "stream", key, "error", err)
	})
}

// addPlain writes messages again without IDMP if their server does not support it after all, because a cluster node may be
// replaced by an older one. Such a server has written nothing.
func (p *Publisher) addPlain(ctx context.Context, adds [][]any, cmds []*redis.StringCmd) {
	again := make([][]any, len(adds))
	some := false
	for i, cmd := range cmds {
		if cmd == nil || !isIdempotent(adds[i]) || !isUnknownOption(cmd.Err()) {
			continue
		}
		key, _ := adds[i][1].(string)
		p.windows.set(key, false)
		again[i], some = withoutIdempotence(adds[i]), true
	}
	if !some {
		return
	}
	for i, cmd := range p.add(ctx, again) {
		if cmd != nil {
			cmds[i] = cmd
		}
	}
}

// isUnknownOption recognizes the replies of servers without IDMP, which parse it as the id of the entry.
func isUnknownOption(err error) bool {
	if err == nil || !group.IsReply(err) {
		return false
	}
	text := err.Error()
	return strings.HasPrefix(text, "ERR Invalid stream ID") || strings.HasPrefix(text, "ERR wrong number of arguments") ||
		strings.HasPrefix(text, "ERR syntax error")
}
