package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/cmd/luatx/internal/shop"
	"github.com/luatx/luatx/outbox"
)

// cleanTimeout bounds the cleanup after a run.
const cleanTimeout = 30 * time.Second

// job is the orders in one mode.
type job struct {
	options  shop.Options
	mode     shop.Mode
	orders   []shop.Order
	expected shop.Expected
	server   server
	client   redis.UniversalClient
	keys     layout
	progress *shop.Progress
}

// outcome is a result with further output of the demo.
type outcome struct {
	shop.Result
	took    time.Duration   // from the first order until everything was quiet
	each    []time.Duration // for each message
	dropped int64           // number of replies
	parked  int64           // number of events
	log     string          // the log of the workers, if it is relevant
}

// run handles the orders until everything is quiet, and reads the books. It deletes the keys unless the options keep them.
func (j job) run(ctx context.Context) (out outcome, err error) {
	log, err := os.CreateTemp("", "luatx-demo-*.log")
	if err != nil {
		return out, err
	}
	defer func() {
		failed := err != nil || j.mode == shop.Scripted && !j.expected.Exact(out.Result)
		if info, e := log.Stat(); failed && ctx.Err() == nil && e == nil && info.Size() > 0 {
			out.log = log.Name()
		}
		_ = log.Close() // the workers wrote it
		if out.log == "" {
			err = errors.Join(err, os.Remove(log.Name()))
		}
	}()
	if !j.options.Keep {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
			defer cancel()
			err = errors.Join(err, clean(ctx, j.client, j.keys.namespace+":*"))
		}()
	}
	transactor, err := luatx.New(j.client, j.keys.config())
	if err != nil {
		return out, err
	}
	seen := observer{client: j.client, keys: j.keys, mode: j.mode, store: outbox.NewStore(transactor)}
	if err := j.prepare(ctx); err != nil {
		return out, err
	}
	if err := j.underFire(ctx, seen, log, &out); err != nil {
		return out, err
	}
	return out, j.judge(ctx, seen, &out)
}

// prepare creates the groups, which also shows whether the server accepts writes.
func (j job) prepare(ctx context.Context) error {
	pipe := j.client.Pipeline()
	for _, tag := range j.keys.space.Tags() {
		pipe.XGroupCreateMkStream(ctx, j.keys.orders(tag), group, "0")
		pipe.XGroupCreateMkStream(ctx, j.keys.sold(tag), group, "0")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return usageError{fmt.Errorf("the server rejects writes: %w", err)}
	}
	return nil
}

// underFire runs the workers behind faulty connections until everything is quiet. None of them runs any more when it
// returns.
func (j job) underFire(ctx context.Context, seen observer, log *os.File, out *outcome) (err error) {
	faults, err := startFaults(ctx, j.server, j.client, j.options.Seed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, faults.close()) }()
	behind := j.server
	behind.Routes = faults.routes
	crew, err := startCrew(j.options.Workers, workerConfig{
		Server: behind, Namespace: j.keys.namespace, Mode: j.mode, Work: j.options.Work,
	}, log)
	if err != nil {
		return err
	}
	s := newShift(j, seen, crew)
	out.took, err = s.run(ctx)
	grace := endTimeout
	if err != nil {
		grace = 0
	}
	err = errors.Join(err, crew.stop(grace))
	out.Kills, out.dropped, out.each = s.kills, faults.dropped.Load(), crew.times()
	return err
}

// judge reads the books and compares them with the orders.
func (j job) judge(ctx context.Context, seen observer, out *outcome) error {
	written, err := seen.read(ctx)
	if err != nil {
		return err
	}
	counts, err := seen.store.Counts(ctx)
	if err != nil {
		return err
	}
	out.parked = counts.Parked
	out.Messages = len(j.orders)
	j.expected.Compare(&out.Result, written)
	out.Pace(out.took, out.each)
	return nil
}

// describe describes the faults of the run in one line.
func (o outcome) describe(mode shop.Mode) string {
	text := fmt.Sprintf("%s mode: workers killed: %d, replies lost on the way: %d", mode, o.Kills, o.dropped)
	if o.parked > 0 {
		text += fmt.Sprintf(", %d events parked", o.parked)
	}
	return text
}
