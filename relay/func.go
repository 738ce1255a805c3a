package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/luatx/luatx/message"
)

// FuncConfig configures Func. Its zero value works.
type FuncConfig struct {
	// Concurrency is the number of events of a batch that are published at a time. Defaults to 8.
	Concurrency int
	// Key returns the ordering key of an event. Events with the same key are published one after another; if one fails, those
	// behind it are not published. Events with an empty key have no order. Defaults to the partition key.
	Key func(*message.RawMessage) string
}

func (c FuncConfig) withDefaults() FuncConfig {
	if c.Concurrency <= 0 {
		c.Concurrency = 8
	}
	if c.Key == nil {
		c.Key = (*message.RawMessage).PartitionKey
	}
	return c
}

// Func returns a Publisher that calls publish for each event. The errors of publish have the same meaning as those of a
// Publisher. Once publish returns an error made by Unavailable, it is not called for the rest of the batch.
func Func(publish func(ctx context.Context, event *message.RawMessage) error, cfg FuncConfig) Publisher {
	cfg = cfg.withDefaults()
	return PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		return each(ctx, events, cfg, func(*message.RawMessage) string { return "" }, publish)
	})
}

var (
	errBehind = errors.New("relay: an event before it with the same key was not sent")
	errNoTime = errors.New("relay: no time was left to publish it")
)

// run is one batch that is published event by event.
type run struct {
	events  []*message.RawMessage
	errs    []error
	scope   func(*message.RawMessage) string
	publish func(context.Context, *message.RawMessage) error
	down    sync.Map // scope to the error of its outage
}

// each publishes a batch event by event, and the events of each key in order. Events behind one that failed are given back.
// Once a scope is unavailable, its remaining events get the same error.
func each(ctx context.Context, events []*message.RawMessage, cfg FuncConfig, scope func(*message.RawMessage) string, publish func(context.Context, *message.RawMessage) error) []error {
	r := &run{events: events, errs: make([]error, len(events)), scope: scope, publish: publish}
	chains := byKey(events, cfg.Key)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(cfg.Concurrency, len(chains)) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(chains) {
					return
				}
				r.chain(ctx, chains[i])
			}
		})
	}
	workers.Wait()
	return r.errs
}

// byKey returns the positions of the events of each key, and a list of its own for each event without a key. The longest
// list comes first, because it takes the longest.
func byKey(events []*message.RawMessage, key func(*message.RawMessage) string) [][]int {
	var chains [][]int
	known := make(map[string]int)
	for i, event := range events {
		k := key(event)
		at, seen := known[k]
		if k == "" || !seen {
			known[k] = len(chains)
			chains = append(chains, []int{i})
			continue
		}
		chains[at] = append(chains[at], i)
	}
	slices.SortStableFunc(chains, func(a, b []int) int { return len(b) - len(a) })
	return chains
}

func (r *run) chain(ctx context.Context, positions []int) {
	var failed error
	for _, i := range positions {
		if failed == nil {
			failed = r.one(ctx, r.events[i])
			r.errs[i] = failed
			continue
		}
		r.errs[i] = Later(errBehind, 0)
		if errors.Is(failed, ErrUnavailable) || errors.Is(failed, ErrLater) {
			r.errs[i] = failed // so that all are due at the same time
		}
	}
}

func (r *run) one(ctx context.Context, event *message.RawMessage) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("relay: the publisher panicked: %v", v)
		}
	}()
	scope := r.scope(event)
	if down, ok := r.down.Load(scope); ok {
		err, _ = down.(error)
		return err
	}
	if ctx.Err() != nil {
		return Later(cmp.Or(context.Cause(ctx), errNoTime), 0)
	}
	err = supervise(ctx, []*message.RawMessage{event}, func(ctx context.Context) []error {
		return []error{r.publish(ctx, event)}
	})[0]
	if errors.Is(err, ErrUnavailable) {
		r.down.Store(scope, err)
	}
	return err
}
