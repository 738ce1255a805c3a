package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/measure/ways"
)

var benchVerb = verb{
	name: "bench", needs: ownServer, short: "compare the ways to commit on your own server or cluster",
	long: `luatx bench compares the ways to commit a transaction on your own server or cluster: the pipeline mode, WATCH,
luatx, a script written by hand for the same transaction, and plain pipelines, which are the upper limit without atomicity.

    luatx bench --redis localhost:6379

Each transaction checks that a message is new, sets three fields of a hash, increments a counter, adds an event to the outbox
and acknowledges the message. The ways take turns in each round. Compare the ratios within a round. The benchmark keeps the
server busy. If other clients use the server, luatx bench prints a warning and waits a moment before it starts. Its keys have
a namespace of their own. At the end it deletes them, with a SCAN of all keys of the server.`,
	one: `if the comparison did not complete`,
	flags: func(flags *flag.FlagSet) action {
		var o benchOptions
		flags.StringVar(&o.redis, "redis", "", "`address` of the server or the cluster (host:port,…), or its redis:// URL; required")
		flags.StringVar(&o.callerList, "callers", "1,64", "numbers of `goroutines` that commit at the same time, one comparison for each")
		flags.IntVar(&o.tags, "tags", 1, "number of tags that the transactions are spread over; on a cluster, use a few for each master")
		flags.IntVar(&o.payload, "payload", 300, "size of an event in `bytes`")
		flags.IntVar(&o.rounds, "rounds", 5, "number of interleaved rounds")
		flags.DurationVar(&o.per, "per", 300*time.Millisecond, "approximate duration of a round of each way")
		flags.BoolVar(&o.json, "json", false, "print JSON with every sample")
		flags.BoolVar(&o.yes, "yes", false, "start at once even if other clients use the server")
		return func(ctx context.Context, s *session, _ []string) error {
			if err := o.validate(); err != nil {
				return usageError{err}
			}
			return compare(ctx, o, s.std)
		}
	},
}

// benchOptions are the flags of luatx bench.
type benchOptions struct {
	redis, callerList     string
	callers               []int
	tags, payload, rounds int
	per                   time.Duration
	json, yes             bool
}

// The bounds of the flags. Larger values would measure the machine.
const (
	benchCallers = 1000
	benchTags    = 16384
	benchPayload = 1 << 20
)

// benchPause is the time to interrupt the command if the server is in use.
const benchPause = 5 * time.Second

func (o *benchOptions) validate() error {
	if o.redis == "" {
		return errors.New("--redis is missing; luatx bench -h lists the flags")
	}
	for text := range strings.SplitSeq(o.callerList, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > benchCallers {
			return fmt.Errorf("--callers is %q; use numbers from 1 to %d", text, benchCallers)
		}
		o.callers = append(o.callers, n)
	}
	switch {
	case o.tags < 1 || o.tags > benchTags:
		return fmt.Errorf("--tags is %d; use 1 to %d", o.tags, benchTags)
	case o.payload < 1 || o.payload > benchPayload:
		return fmt.Errorf("--payload is %d; use 1 to %d bytes", o.payload, benchPayload)
	case o.rounds < 1:
		return fmt.Errorf("--rounds is %d; use 1 or more", o.rounds)
	case o.per <= 0 || o.per > time.Minute:
		return fmt.Errorf("--per is %v; use more than 0, up to 1m", o.per)
	}
	return nil
}

// compare measures on the server and prints the results.
func compare(ctx context.Context, o benchOptions, std standard) (err error) {
	target, err := reach(ctx, o.redis)
	if err != nil {
		return err
	}
	client := target.connectAs(max(poolSize, benchCallers+8))
	defer func() { _ = client.Close() }() // the client is not used again
	if err := o.warn(ctx, client, std); err != nil {
		return err
	}
	run := benchRun{options: o, client: client, prefix: "luatx-bench-" + strings.ToLower(rand.Text()[:10]), std: std}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Minute)
		defer cancel()
		err = errors.Join(err, clean(ctx, client, run.prefix+"-*"))
	}()
	result, err := run.all(ctx)
	if err != nil {
		return err
	}
	return result.write(std.out, o.json)
}

// warn prints a warning if others use the server, and leaves time to interrupt.
func (o benchOptions) warn(ctx context.Context, client redis.UniversalClient, std standard) error {
	others, err := otherClients(ctx, client)
	if err != nil {
		fmt.Fprintf(std.err, "luatx bench: cannot determine whether other clients use the server: %v\n", err)
		return ctx.Err()
	}
	if others == 0 {
		return nil
	}
	took := time.Duration(len(o.callers)*(o.rounds+2)*2*len(ways.Names())) * o.per
	fmt.Fprintf(std.err, "luatx bench: %d other clients use this server; the benchmark will keep it busy for about %v; interrupt to cancel\n", others, took.Round(time.Second))
	if !o.yes {
		sleep.For(ctx, benchPause)
	}
	return ctx.Err()
}

// otherClients counts several times, because the server may not have noticed yet that a connection of this process was
// closed.
func otherClients(ctx context.Context, client redis.UniversalClient) (n int, err error) {
	for range 5 {
		if n, err = countOthers(ctx, client); n == 0 || err != nil || !sleep.For(ctx, 50*time.Millisecond) {
			break
		}
	}
	return n, errors.Join(err, ctx.Err())
}

// countOthers returns the number of clients of the busiest master, without this client's only connection to it.
func countOthers(ctx context.Context, client redis.UniversalClient) (int, error) {
	var mu sync.Mutex
	most := 0
	err := eachMaster(ctx, client, func(ctx context.Context, node redis.Cmdable) error {
		info := node.InfoMap(ctx, "clients")
		if info.Err() != nil {
			return info.Err()
		}
		n, err := strconv.Atoi(info.Item("Clients", "connected_clients"))
		mu.Lock()
		defer mu.Unlock()
		most = max(most, n-1)
		return err
	})
	return most, err
}

// benchRun is one run of luatx bench.
type benchRun struct {
	options benchOptions
	client  redis.UniversalClient
	prefix  string
	std     standard
}

// all compares the ways that the server allows, for each number of callers.
func (r benchRun) all(ctx context.Context) (benchResult, error) {
	result := benchResult{Figures: map[string]float64{}, LeftOut: map[string]string{}}
	fine, err := r.usable(ctx, result.LeftOut)
	if err != nil {
		return result, err
	}
	for _, n := range r.options.callers {
		cell := r.cell(n)
		fmt.Fprintf(r.std.err, "luatx bench: %s, %d ways, %d rounds\n", cell.Name, len(fine), r.options.rounds)
		table, err := measure.Interleave(ctx, cell, fine, r.options.rounds, r.options.per)
		if err != nil {
			return result, err
		}
		result.add(n, table)
	}
	return result, nil
}

func (r benchRun) cell(callers int) measure.Cell {
	return measure.Cell{
		Name: fmt.Sprintf("%d callers", callers), Callers: callers, Payload: r.options.payload, Tags: r.options.tags, Prefix: r.prefix,
	}
}

// usable tries each way and leaves out those that the server rejects, for example because the user lacks a right.
func (r benchRun) usable(ctx context.Context, leftOut map[string]string) ([]measure.Way, error) {
	var fine []measure.Way
	_, unknown := measure.ServerCPU(r.client)(ctx)
	if unknown != nil {
		fmt.Fprintf(r.std.err, "luatx bench: cannot measure the CPU time of the server: %v\n", unknown)
	}
	for _, way := range ways.Commit(r.client) {
		if unknown != nil {
			way = withoutCPU(way)
		}
		trial := r.cell(1)
		trial.Name, trial.Ops = "a trial", 2*ways.BatchSize
		if _, err := measure.Interleave(ctx, trial, []measure.Way{way}, 0, 0); err != nil {
			if ctx.Err() != nil || way.Name == ways.ThreeStep {
				return nil, err
			}
			leftOut[way.Name] = err.Error()
			fmt.Fprintf(r.std.err, "luatx bench: skipped: %v\n", err)
			continue
		}
		fine = append(fine, way)
	}
	return fine, nil
}

func withoutCPU(way measure.Way) measure.Way {
	setup := way.Setup
	way.Setup = func(ctx context.Context, c measure.Cell) (*measure.Running, error) {
		running, err := setup(ctx, c)
		if running != nil {
			running.CPU = nil
		}
		return running, err
	}
	return way
}
