package trigger

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
)

// records keeps what is logged, each line as texts.
type records struct {
	with map[string]string
	root *records

	mu    sync.Mutex
	lines []map[string]string
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithGroup(string) slog.Handler            { return r }

func (r *records) top() *records {
	if r.root != nil {
		return r.root
	}
	return r
}

func (r *records) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := maps.Clone(r.with)
	if with == nil {
		with = map[string]string{}
	}
	for _, a := range attrs {
		with[a.Key] = a.Value.Resolve().String()
	}
	return &records{with: with, root: r.top()}
}

func (r *records) Handle(_ context.Context, record slog.Record) error {
	line := map[string]string{"msg": record.Message, "level": record.Level.String()}
	maps.Copy(line, r.with)
	record.Attrs(func(a slog.Attr) bool {
		line[a.Key] = a.Value.Resolve().String()
		return true
	})
	top := r.top()
	top.mu.Lock()
	defer top.mu.Unlock()
	top.lines = append(top.lines, line)
	return nil
}

func (r *records) all() []map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func (r *records) len() int { return len(r.all()) }

func (r *records) count(text string) (n int) {
	for _, line := range r.all() {
		if strings.Contains(line["msg"], text) {
			n++
		}
	}
	return n
}

// find returns the first line with the text.
func (r *records) find(text string) map[string]string {
	for _, line := range r.all() {
		if strings.Contains(line["msg"], text) {
			return line
		}
	}
	return nil
}
