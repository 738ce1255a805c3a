package relaying

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// The ways to drain a backlog.
const (
	theRelay      = "luatx relay"
	relayRemember = "luatx relay, ids given by the caller"
	relayOfMany   = "luatx relay, 16 tags"
	streamLoop    = "XREADGROUP 100, then XACK with XDEL"
	decodingLoop  = "the same loop, decoding the events"
	fusedLoop     = "the same loop, with the next XREADGROUP in the pipeline"
	oneByOne      = "XREADGROUP 1, XACK, XDEL, one after another"
	drainBacklog  = 100_000
	drainTimeout  = 2 * time.Minute
	readAtOnce    = 100
	streamAtOnce  = 1000 // entries per pipeline when filling a stream
	drainedStream = "bench:stream"
)

func drain(ctx context.Context, env suite.Env, b *bed, report *suite.Report) error {
	cell := measure.Cell{Name: "drain", Ops: drainBacklog}
	if env.Short {
		cell.Ops /= 10
	}
	env.Log("drain of %d", cell.Ops)
	table, err := measure.Interleave(ctx, cell, drainers(b), env.Rounds, env.Per)
	if err != nil {
		return err
	}
	report.Measured = append(report.Measured, table)
	grid := suite.Grid{
		Caption: fmt.Sprintf("A relay or a loop in one process drains a backlog of %d events of 300 bytes on one server. The events are discarded.", cell.Ops),
		Head:    []string{"way", "events per second", "× the loop", "server µs per event", "client µs per event"},
	}
	for _, way := range table.Ways {
		row := []string{way}
		speed, err := table.Ratio(way, streamLoop, measure.Throughput)
		if err != nil {
			return err
		}
		for _, metric := range []measure.Metric{measure.Throughput, measure.ServerCPUs, measure.ClientCPUs} {
			value, err := table.Value(way, metric)
			if err != nil {
				return err
			}
			row = append(row, suite.Number(value.Median))
		}
		row = append(row[:2], append([]string{suite.Spread(speed)}, row[2:]...)...)
		grid.Rows = append(grid.Rows, row)
	}
	report.Grids = append(report.Grids, grid)
	for name, base := range map[string]string{"relay_vs_stream_loop": streamLoop, "relay_vs_one_by_one": oneByOne} {
		if report.Figures[name], err = table.Ratio(theRelay, base, measure.Throughput); err != nil {
			return err
		}
	}
	return nil
}

// drainer creates a backlog of n events and drains it.
type drainer struct {
	fill  func(ctx context.Context, n int) error
	drain func(ctx context.Context, n int) error
	left  func(ctx context.Context) (int64, error) // number of events that wait or are being published
}

func drainers(b *bed) []measure.Way {
	relays := func(name string, tags int, event func(int) (luatx.Event, error)) measure.Way {
		return way(name, b, func() (drainer, error) { return newRelayDrainer(b.client, tags, event) })
	}
	loops := func(name string, l loop) measure.Way {
		l.client = b.client
		return way(name, b, func() (drainer, error) { return drainer{l.fill, l.drain, l.left}, nil })
	}
	return []measure.Way{
		relays(theRelay, 1, derived),
		relays(relayRemember, 1, event),
		relays(relayOfMany, 16, derived),
		loops(streamLoop, loop{count: readAtOnce}),
		loops(decodingLoop, loop{count: readAtOnce, decode: true}),
		loops(fusedLoop, loop{count: readAtOnce, fused: true}),
		loops(oneByOne, loop{count: 1, apart: true}),
	}
}

// way returns a drainer as a way. Each round starts with an empty server and a new backlog, which it drains completely.
func way(name string, b *bed, begin func() (drainer, error)) measure.Way {
	return measure.Way{Name: name, Setup: func(context.Context, measure.Cell) (*measure.Running, error) {
		d, err := begin()
		if err != nil {
			return nil, err
		}
		return &measure.Running{
			Prepare: func(ctx context.Context, n int) error {
				return errors.Join(b.client.FlushAll(ctx).Err(), d.fill(ctx, n))
			},
			Round: func(ctx context.Context, n int) error {
				bounded, cancel := context.WithTimeout(ctx, drainTimeout)
				defer cancel()
				if err := d.drain(bounded, n); err != nil {
					return err
				}
				left, err := d.left(ctx)
				if err == nil && left > 0 {
					err = fmt.Errorf("%d events were not published", left)
				}
				return err
			},
			CPU: measure.ServerCPU(b.client),
		}, nil
	}}
}

// newRelayDrainer returns a relay with usual settings that finds the backlog when it starts.
func newRelayDrainer(client redis.UniversalClient, tags int, event func(int) (luatx.Event, error)) (drainer, error) {
	keyspace := luatx.Partitions(tags)
	tr, err := transactor(client, keyspace, quiet)
	if err != nil {
		return drainer{}, err
	}
	return drainer{
		fill: func(ctx context.Context, n int) error { return fill(ctx, tr, aggregates(keyspace, tags), event, 0, n) },
		drain: func(ctx context.Context, n int) error {
			var published atomic.Int64
			ctx, all := context.WithCancel(ctx)
			defer all()
			r, err := relay.New(tr, relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
				if published.Add(int64(len(events))) >= int64(n) {
					all()
				}
				return nil
			}), relay.Config{Logger: tr.Config().Logger})
			if err != nil {
				return err
			}
			if err := r.Run(ctx); err != nil {
				return err
			}
			if got := published.Load(); got != int64(n) {
				return fmt.Errorf("%d of %d events were published", got, n)
			}
			return nil
		},
		left: func(ctx context.Context) (int64, error) { return pending(ctx, tr) },
	}, nil
}

// pending returns the number of unpublished events, including leased ones.
func pending(ctx context.Context, tr *luatx.Transactor) (int64, error) {
	counts, err := outbox.NewStore(tr).Counts(ctx)
	return counts.Pending + counts.Waiting, err
}

// loop is a hand-written loop over a stream: read, publish, acknowledge and delete, read again.
type loop struct {
	client *redis.Client
	count  int64
	fused  bool // the next read is in the pipeline of the acknowledgement
	decode bool
	apart  bool // one round trip for each command
}

func (l loop) fill(ctx context.Context, n int) error {
	for i := 0; i < n; i += streamAtOnce {
		_, err := l.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for j := i; j < min(i+streamAtOnce, n); j++ {
				e, err := event(j)
				if err != nil {
					return err
				}
				pipe.XAdd(ctx, &redis.XAddArgs{Stream: drainedStream, Values: []any{"body", e.Body}})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return l.client.XGroupCreate(ctx, drainedStream, "g", "0").Err()
}

func (l loop) drain(ctx context.Context, n int) error {
	ids, err := l.publish(l.read(ctx, l.client))
	for published := len(ids); err == nil; published += len(ids) {
		more := published < n
		next, failed := l.settle(ctx, ids, more)
		if failed != nil || !more {
			return failed
		}
		if next == nil {
			next = l.read(ctx, l.client)
		}
		ids, err = l.publish(next)
	}
	return err
}

// settle acknowledges and deletes entries. With fused, it also reads the next ones.
func (l loop) settle(ctx context.Context, ids []string, more bool) (next *redis.XStreamSliceCmd, err error) {
	if l.apart {
		return nil, errors.Join(
			l.client.XAck(ctx, drainedStream, "g", ids...).Err(),
			l.client.XDel(ctx, drainedStream, ids...).Err())
	}
	pipe := l.client.Pipeline()
	pipe.XAck(ctx, drainedStream, "g", ids...)
	pipe.XDel(ctx, drainedStream, ids...)
	if l.fused && more {
		next = l.read(ctx, pipe)
	}
	_, err = pipe.Exec(ctx)
	return next, err
}

func (l loop) read(ctx context.Context, on redis.Cmdable) *redis.XStreamSliceCmd {
	return on.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: "g", Consumer: "c", Streams: []string{drainedStream, ">"}, Count: l.count, Block: -1,
	})
}

// publish decodes the entries of a read if required, and returns their ids.
func (l loop) publish(read *redis.XStreamSliceCmd) ([]string, error) {
	streams, err := read.Result()
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, l.count)
	for _, entry := range streams[0].Messages {
		body, ok := entry.Values["body"].(string)
		if !ok {
			return nil, fmt.Errorf("entry %s has no body", entry.ID)
		}
		if l.decode {
			if _, err := outbox.Decode([]byte(body)); err != nil {
				return nil, err
			}
		}
		ids = append(ids, entry.ID)
	}
	return ids, nil
}

func (l loop) left(ctx context.Context) (int64, error) {
	return l.client.XLen(ctx, drainedStream).Result()
}
