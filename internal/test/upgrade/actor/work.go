package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/repair"
)

// relay publishes until ctx ends. It counts the events and appends them to a list that all actors share.
func (a *actor) relay(ctx context.Context, refusing bool) error {
	publish := func(ctx context.Context, event *message.RawMessage) error {
		if refusing && event.Type() == "refused" {
			return message.Permanent(errors.New("refused"))
		}
		a.mu.Lock()
		a.saw.Published[event.ID()]++
		a.mu.Unlock()
		return a.client.RPush(ctx, a.tr.Config().Namespace+"-published", event.ID()).Err()
	}
	r, err := relay.New(a.tr, relay.Func(publish, relay.FuncConfig{}), relay.Config{
		SweepInterval: 20 * time.Millisecond, Lease: 2 * time.Second, SentRetention: years, Logger: a.tr.Config().Logger,
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// publish publishes until nothing is due.
func (a *actor) publish(ctx context.Context, refusing bool) error {
	return during(ctx, func(ctx context.Context) error { return a.relay(ctx, refusing) }, func() error { return a.drained(ctx) })
}

// during calls do while run runs.
func during(ctx context.Context, run func(ctx context.Context) error, do func() error) error {
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- run(running) }()
	err := do()
	stop()
	return errors.Join(err, <-ran)
}

// drained waits until no event is due, in hand, or waiting for another.
func (a *actor) drained(ctx context.Context) error {
	return until(ctx, func() (bool, error) {
		counts, err := a.store.Counts(ctx)
		if err != nil || counts.Leased+counts.Waiting > 0 {
			return false, err
		}
		due, err := a.store.FindPending(ctx, 1)
		return len(due) == 0, err
	})
}

// fire lets the timers fire that are due.
func (a *actor) fire(ctx context.Context) error {
	worker, err := expiry.NewWorker(a.timers, expiry.WorkerConfig{
		SweepInterval: 20 * time.Millisecond, Logger: a.tr.Config().Logger,
		Event: func(_ context.Context, timer expiry.Timer) (*message.Message, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if !slices.Contains(a.saw.Fired, timer.Subject) {
				a.saw.Fired = append(a.saw.Fired, timer.Subject)
			}
			return message.New(timer.Subject, message.Attributes{"source": "/upgrade", "type": "fired"}, nil), nil
		},
	})
	if err != nil {
		return err
	}
	err = during(ctx, worker.Run, func() error {
		return until(ctx, func() (bool, error) {
			for _, err := range a.timers.Due(ctx, 1) {
				return false, err
			}
			return true, nil
		})
	})
	slices.Sort(a.saw.Fired)
	return err
}

func (a *actor) findings(ctx context.Context) error {
	worker, err := repair.New(a.tr, repair.Config{Logger: a.tr.Config().Logger})
	if err != nil {
		return err
	}
	for finding, err := range worker.Check(ctx) {
		if err != nil {
			return err
		}
		a.saw.Findings = append(a.saw.Findings, finding.String())
	}
	return nil
}

func until(ctx context.Context, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
