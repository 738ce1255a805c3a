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
	// Concurrency is how many events of a batch the function is given at a time. Defaults to 8.
	Concurrency int
	// Key names what keeps events in order: those of one key are published one after the other, and none of them after
	// one that was not sent. Empty: no order. Defaults to the partition key.
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

// Func makes a Publisher of a function that publishes one event. Its errors are a Publisher's answers. Once it says
// Unavailable, it is not called for the rest of the batch.
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

// run is one batch on its way through a function.
type run struct {
	events  []*message.RawMessage
	errs    []error
	scope   func(*message.RawMessage) string
	publish func(context.Context, *message.RawMessage) error
	down    sync.Map // scope: the error of its outage
}

// each publishes a batch one by one, those of a key in their order. It holds back events behind one that was not sent.
// Events of a scope that is unavailable share its error.
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

// byKey lists the positions of the events of each key, and of each that has none; the longest list first, since it takes
// the longest.
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
			r.errs[i] = failed // and so due again together with it
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
