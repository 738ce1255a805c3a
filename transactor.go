// Package luatx commits everything that a message handler does in Redis as one script on one hash slot: the inbox check,
// the business writes, the events and the acknowledgement of the input. All of it takes effect, or none of it. Package stack
// assembles the middlewares; docs/guarantees.md lists the guarantees and their limits.
package luatx

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/flight"
	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/record"
	"github.com/luatx/luatx/internal/shard"
)

// layout is the version of the key layout of a shard.
const layout = 8

// noteTimeout bounds the note about a compiled plan.
const noteTimeout = 10 * time.Second

// A Transactor commits transactions. One per process is enough. It is safe for concurrent use and needs no closing.
type Transactor struct {
	linked
	cfg      Config
	client   redis.UniversalClient
	runner   *eval.Runner
	shards   *shard.Scripts
	commits  *commit.Sender
	inside   *link.Inside
	identity string
	source   *record.Source
	filler   *record.Filler
	clock    atomic.Pointer[reading]
	memory   memory

	checks  flight.Group
	checked atomic.Bool
	passed  chan struct{} // closed when checked is true
}

// linked gives the packages of this module access to the internals of a Transactor.
type linked = link.Point

// New returns a Transactor that uses client, which the caller closes. New does no I/O. It returns an error if client is nil, is a
// redis.Ring, which does not hash keys as a cluster does, or is a cluster client that reads from replicas, which may lack the
// latest writes. It also returns an error if cfg is invalid.
//
// A hook of the client must not keep the arguments of a command that has returned, because later commits reuse their memory.
func New(client redis.UniversalClient, cfg Config) (*Transactor, error) {
	if client == nil {
		return nil, errors.New("luatx: the client is nil")
	}
	if _, ring := client.(*redis.Ring); ring {
		return nil, errors.New("luatx: redis.Ring spreads keys in a way of its own; use redis.NewClient or redis.NewClusterClient")
	}
	if cluster, ok := client.(*redis.ClusterClient); ok && cluster.Options().ReadOnly {
		return nil, errors.New("luatx: the cluster client reads from replicas, which may lack the latest writes; set none of ReadOnly, RouteByLatency and RouteRandomly")
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := cfg.Durability.fits(client); err != nil {
		return nil, err
	}
	procedures, commands := make([]commit.Procedure, len(cfg.Procedures)), ""
	for i, p := range cfg.Procedures {
		procedures[i], commands = commit.Procedure(p), command.LuaTable()
	}
	identity := fmt.Sprintf("luatx %d, namespace %s, %s", layout, cfg.Namespace, cfg.Keyspace.identity())
	constants := shard.Constants{
		Namespace:   cfg.Namespace,
		Identity:    identity,
		Retention:   cfg.Retention,
		Capacity:    cfg.OutboxCapacity,
		Bytes:       cfg.OutboxBytes,
		Parked:      cfg.ParkedCapacity,
		ParkedBytes: cfg.ParkedBytes,
		Lane:        cfg.LaneCapacity,
		UndoBytes:   cfg.UndoBytes,
		KeptBytes:   cfg.KeepBytes,
		Guarded:     cfg.GuardBytes,
		Durability:  cfg.Durability.script(),
		Budget:      cfg.ProcedureCalls,
		Commands:    commands,
	}
	runner := eval.New(client, cfg.Namespace, cfg.Logger)
	t := &Transactor{
		cfg:      cfg,
		client:   client,
		identity: identity,
		source:   record.NewSource(),
		filler:   record.NewFiller(),
		passed:   make(chan struct{}),
		runner:   runner,
		commits:  commit.New(runner, constants, procedures),
		shards:   shard.New(runner, constants),
	}
	if !cfg.NoCompile {
		t.commits.CompileAfter(commit.CompileAfter)
	}
	t.commits.Note = t.notePlan
	t.inside = &link.Inside{
		Runner: runner, Scripts: t.shards, First: t.shards.Shard(cfg.Keyspace.Slots()[0]), TagKey: cfg.Keyspace.TagKey,
		Commits: t.commits, Gather: t.gather, NoWakeUps: cfg.NoWakeUps,
	}
	if !cfg.NoRegistration {
		t.inside.Processes = process.New(client, cfg.Namespace, cfg.Logger)
	}
	t.inside.History = history.New(history.Config{
		Client: client, Namespace: cfg.Namespace, Scripts: t.shards, Slots: cfg.Keyspace.Slots, Logger: cfg.Logger,
		Limits: history.Limits{Events: cfg.OutboxCapacity, Bytes: cfg.OutboxBytes, Parked: cfg.ParkedCapacity},
		Off:    cfg.NoRegistration || cfg.NoHistory,
	})
	t.linked = link.NewPoint(t.inside)
	return t, nil
}

// notePlan lists a compiled plan for operators, who see it with `luatx scripts --plans`.
func (t *Transactor) notePlan(plan shard.Plan) {
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := t.shards.NotePlan(ctx, t.inside.First, plan); err != nil {
		t.cfg.Logger.Debug("luatx: the use of a compiled script was not noted", "plan", plan.Does, "error", err)
	}
}

// Config returns the configuration with its defaults.
func (t *Transactor) Config() Config { return t.cfg }

// Keyspace returns the keyspace of the configuration.
func (t *Transactor) Keyspace() Keyspace { return t.cfg.Keyspace }

// reading is a reading of the server's clock with the local (monotonic) time at which it was taken.
type reading struct{ server, local time.Time }

// drift is the difference between the server's clock and the expected time from which on a new reading is stored.
const drift = 100 * time.Millisecond

func (t *Transactor) setClock(server time.Time) {
	now := time.Now()
	if d := server.Sub(t.serverTime(now)); d < -drift || d > drift || t.clock.Load() == nil {
		t.clock.Store(&reading{server, now})
	}
}

// serverTime returns the server's time at a local time, or the local time if the server's clock has not been read.
func (t *Transactor) serverTime(local time.Time) time.Time {
	if r := t.clock.Load(); r != nil {
		return r.server.Add(local.Sub(r.local))
	}
	return local
}
