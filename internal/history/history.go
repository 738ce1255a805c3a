// Package history stores the rates of a namespace: events by destination and outcome, failures by class, and
// measurements of the outbox. It keeps one hour in intervals of 10 seconds, and 30 days in intervals of 15 minutes. Its
// space in Redis is bounded.
package history

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// A Resolution is the length of the intervals of a history, and the time for which it keeps them. The script contains
// the same values.
type Resolution struct{ Step, Keep time.Duration }

// Fine returns the resolution of the last hour.
func Fine() Resolution { return Resolution{10 * time.Second, time.Hour} }

// Coarse returns the resolution of the last 30 days.
func Coarse() Resolution { return Resolution{15 * time.Minute, 30 * 24 * time.Hour} }

// number returns the number of the interval that contains a time, counted since 1970.
func (r Resolution) number(at time.Time) int64 { return at.UnixMilli() / r.Step.Milliseconds() }

// begin returns the time at which an interval begins.
func (r Resolution) begin(number int64) time.Time {
	return time.UnixMilli(number * r.Step.Milliseconds())
}

// The keys of the script.
const (
	keyVoid = iota
	keyHistory
	keyFine
	keyCoarse
)

const (
	interval = 10 * time.Second
	// manyShards is the number of shards from which the outbox is measured less often, because a measurement queries
	// each shard.
	manyShards   = 256
	manyInterval = time.Minute

	writeTimeout = 3 * time.Second
	lookTimeout  = 5 * time.Second
	endTimeout   = time.Second
	// attempts is the number of times that a write is sent if the server's clock is in another interval.
	attempts = 3
)

// Config configures a History.
type Config struct {
	Client    redis.UniversalClient
	Namespace string
	// Scripts read the shards of Slots.
	Scripts *shard.Scripts
	Slots   func() []int
	// Limits are the capacities of a shard.
	Limits Limits
	// Off prevents Keep and End from writing.
	Off    bool
	Logger *slog.Logger
}

// History is the history of a namespace.
type History struct {
	cfg    Config
	runner *eval.Runner
	script *eval.Script
	keys   []string
	ahead  atomic.Int64 // the lead of the server's clock over the local one, in ns

	// Interval is the time between two writes. Tests shorten it.
	Interval time.Duration
}

// New returns the History of a namespace. It does no I/O.
func New(cfg Config) *History {
	h := &History{cfg: cfg, runner: eval.New(cfg.Client, cfg.Namespace, cfg.Logger), Interval: interval}
	h.script = h.runner.Script("history", lua.Script("history", nil))
	for _, name := range lua.Keys("history") { // they are in the shard of slot 0, like the list of processes
		h.keys = append(h.keys, cfg.Namespace+":{"+slot.Text(0)+"}:"+name)
	}
	return h
}

// On reports whether Keep and End write.
func (h *History) On() bool { return !h.cfg.Off }

// key returns the key of an interval.
func (h *History) key(prefix int, number int64) string {
	return h.keys[prefix] + ":" + strconv.FormatInt(number, 10)
}

// write adds pairs to the current intervals. If pause is not zero, it reports whether the caller must measure the
// outbox, which is true once per pause over all processes. If the connection fails after the server has run the script,
// the pairs are added twice.
func (h *History) write(ctx context.Context, pause time.Duration, pairs []any) (turn bool, err error) {
	for range attempts {
		now := time.Now().Add(time.Duration(h.ahead.Load()))
		fine, coarse := Fine().number(now), Coarse().number(now)
		keys := []string{h.keys[keyVoid], h.keys[keyHistory], h.key(keyFine, fine), h.key(keyCoarse, coarse)}
		reply, err := h.runner.Eval(ctx, h.script, keys, append([]any{fine, coarse, pause.Milliseconds()}, pairs...))
		if err != nil {
			return false, err
		}
		server, rows, err := eval.Timed(reply)
		if err != nil || len(rows) != 2 {
			return false, eval.Malformed("history", reply)
		}
		h.ahead.Store(int64(time.Until(server)))
		if eval.Word(rows[0]) == "done" {
			return eval.Number(rows[1]) == 1, nil
		}
	}
	return false, fmt.Errorf("luatx: write history: the interval of the server's clock changed %d times; the next write repeats it", attempts)
}
