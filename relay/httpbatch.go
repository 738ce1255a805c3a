package relay

import (
	"context"
	"errors"
	"net/url"
	"sync"

	"github.com/luatx/luatx/message"
)

// publishBatches sends the events of each URL in batches, one after another. It serves several URLs concurrently.
func (p *HTTPPublisher) publishBatches(ctx context.Context, events []*message.RawMessage) []error {
	b := &batches{p: p, events: events, errs: make([]error, len(events))}
	positions := make(map[string][]int)
	targets := make(map[string]*url.URL)
	for i, event := range events {
		target, err := p.target(event)
		if err != nil {
			b.errs[i] = err
			continue
		}
		text := target.String()
		targets[text] = target
		positions[text] = append(positions[text], i)
	}
	places := make(chan struct{}, p.cfg.Concurrency)
	var side sync.WaitGroup
	for text, all := range positions {
		side.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			b.to(ctx, targets[text], all)
		})
	}
	side.Wait()
	return b.errs
}

// batches holds the events of one Publish, and their results.
type batches struct {
	p      *HTTPPublisher
	events []*message.RawMessage
	errs   []error
}

func (b *batches) answer(positions []int, err error) {
	for _, i := range positions {
		b.errs[i] = err
	}
}

// to sends the events of one URL. Once the receiver is unavailable, to sends nothing more.
func (b *batches) to(ctx context.Context, target *url.URL, positions []int) {
	var down error
	for len(positions) > 0 {
		n := min(len(positions), b.p.cfg.BatchSize)
		if down == nil {
			down = b.send(ctx, target, positions[:n])
		} else {
			b.answer(positions[:n], down)
		}
		positions = positions[n:]
	}
}

// send sends one batch. If the receiver is unavailable, send returns the error. It sends a rejected batch again in halves.
func (b *batches) send(ctx context.Context, target *url.URL, positions []int) (down error) {
	if ctx.Err() != nil {
		b.answer(positions, Later(errNoTime, 0))
		return nil //nolint:nilerr // it is the time that is up
	}
	some := make([]*message.RawMessage, len(positions))
	for i, position := range positions {
		some[i] = b.events[position]
	}
	err := supervise(ctx, some, func(ctx context.Context) []error {
		return fill(len(some), b.p.send(ctx, target, some...))
	})[0] // all events of a request have the same result
	switch {
	case errors.Is(err, ErrUnavailable):
		down = err
	case len(positions) > 1 && onesFault(err):
		half := len(positions) / 2
		if down = b.send(ctx, target, positions[:half]); down == nil {
			return b.send(ctx, target, positions[half:])
		}
		b.answer(positions[half:], down)
		return down
	}
	b.answer(positions, err)
	return down
}

// onesFault reports whether a single event may have caused an error. That excludes errors of the address and of
// authentication.
func onesFault(err error) bool {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return message.IsPermanent(err) || status.Status >= 500
	}
	if errors.Is(err, ErrDeniedAddress) {
		return false
	}
	return message.IsPermanent(err) || classOf(err, "") == "no_answer"
}
