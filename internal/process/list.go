// Package process keeps the list of the running processes of a namespace: relays, consumers, triggers and workers, each
// with its last report. A heartbeat renews an entry, and a process that stops removes its own entry.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/slot"
)

// The keys of the list, which package shard describes. They are in the shard of slot 0, so that a process needs only
// the namespace.
const processes, heartbeats = 1, 2

const (
	interval = 10 * time.Second
	// DeadAfter is the time without a heartbeat after which a process counts as dead: three intervals.
	DeadAfter = 3 * interval
	// ForgetAfter is the time without a heartbeat after which the list forgets a process.
	ForgetAfter = time.Hour
	// Most is the maximum number of processes that the list keeps.
	Most = 4096

	beatTimeout  = 3 * time.Second
	leaveTimeout = time.Second
	page         = 256
)

// List is the list of a namespace. A nil List accepts no processes.
type List struct {
	client redis.UniversalClient
	runner *eval.Runner
	script *eval.Script
	keys   []string
	log    *slog.Logger
	most   int

	// Interval is the time between two heartbeats. Tests shorten it.
	Interval time.Duration
}

// New returns the list of a namespace. It does no I/O.
func New(client redis.UniversalClient, namespace string, log *slog.Logger) *List {
	l := &List{client: client, runner: eval.New(client, namespace, log), log: log, most: Most, Interval: interval}
	l.script = l.runner.Script("process", lua.Script("process", nil))
	for _, name := range lua.Keys("process") {
		l.keys = append(l.keys, namespace+":{"+slot.Text(0)+"}:"+name)
	}
	return l
}

// Beat adds or renews a process. Its id begins with its kind and a dash.
func (l *List) Beat(ctx context.Context, id, kind string, report Report) error {
	r := record{kind, version(), host(), os.Getpid(), report}
	maps.DeleteFunc(r.Counts, func(_ string, n int64) bool { return n == 0 })
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return l.call(ctx, beatTimeout, "beat", id, string(text))
}

// leave removes a process.
func (l *List) leave(ctx context.Context, id string) error {
	return l.call(ctx, leaveTimeout, "leave", id, "")
}

func (l *List) call(ctx context.Context, timeout time.Duration, act, id, report string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := l.runner.Eval(ctx, l.script, l.keys, []any{act, id, report, ForgetAfter.Milliseconds(), l.most})
	return err
}

// An Entry is a process of the list.
type Entry struct {
	ID, Kind, Version, Host string
	PID                     int
	// Since is the time of its registration, and Seen the time of its last heartbeat, by the server's clock.
	Since, Seen time.Time
	// Dead reports whether the process has sent no heartbeat for DeadAfter.
	Dead bool

	Report
}

// All lists the processes of the given kinds, or of all kinds. It sorts them by id, which begins with the kind and the
// host.
func (l *List) All(ctx context.Context, kinds ...string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		now, ids, seen, err := l.ids(ctx, kinds)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for chunk := range slices.Chunk(ids, page) {
			reports, err := l.client.HMGet(ctx, l.keys[processes], chunk...).Result()
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for i, report := range reports {
				text, there := report.(string)
				if !there { // the process has left meanwhile
					continue
				}
				e, err := entryOf(chunk[i], text, seen[chunk[i]], now)
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// ids returns the server's time, and the sorted ids of the processes that are not forgotten, with the times of their
// last heartbeats.
func (l *List) ids(ctx context.Context, kinds []string) (now time.Time, ids []string, seen map[string]time.Time, err error) {
	var clock *redis.TimeCmd
	var found *redis.ZSliceCmd
	if clock, found = l.client.Time(ctx), l.client.ZRangeWithScores(ctx, l.keys[heartbeats], 0, -1); errors.Join(clock.Err(), found.Err()) != nil {
		return now, nil, nil, errors.Join(clock.Err(), found.Err())
	}
	now, seen = clock.Val(), map[string]time.Time{}
	for _, z := range found.Val() {
		id, _ := z.Member.(string)
		kind, _, _ := strings.Cut(id, "-")
		at := time.UnixMilli(int64(z.Score))
		if now.Sub(at) > ForgetAfter || len(kinds) > 0 && !slices.Contains(kinds, kind) {
			continue
		}
		ids, seen[id] = append(ids, id), at
	}
	slices.Sort(ids)
	return now, ids, seen, nil
}

func entryOf(id, text string, seen, now time.Time) (Entry, error) {
	since, report, _ := strings.Cut(text, " ")
	var r record
	if err := json.Unmarshal([]byte(report), &r); err != nil {
		return Entry{ID: id}, fmt.Errorf("report of process %q: %w", id, err)
	}
	ms, err := strconv.ParseInt(since, 10, 64)
	if err != nil {
		return Entry{ID: id}, fmt.Errorf("report of process %q: %w", id, err)
	}
	return Entry{
		ID: id, Kind: r.Kind, Version: r.Version, Host: r.Host, PID: r.PID, Since: time.UnixMilli(ms), Seen: seen,
		Dead: now.Sub(seen) > DeadAfter, Report: r.Report,
	}, nil
}
