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
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/record"
	"github.com/luatx/luatx/internal/shard"
)

// layout is the version of the keys of a shard.
const layout = 5

// noteTimeout bounds the note of a compiled plan.
const noteTimeout = 10 * time.Second

// A Transactor commits transactions. One serves a process; it is safe for concurrent use and needs no closing.
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

	checks  flight.Group
	checked atomic.Bool
	passed  chan struct{} // closed when checked is true
}

// linked is how this module's packages reach the inside of a Transactor.
type linked = link.Point

// New returns a Transactor. It does no I/O; the client stays the caller's. A Ring is refused: it does not hash
// keys as the cluster does.
func New(client redis.UniversalClient, cfg Config) (*Transactor, error) {
	if client == nil {
		return nil, errors.New("luatx: the client is nil")
	}
	if _, ring := client.(*redis.Ring); ring {
		return nil, errors.New("luatx: redis.Ring spreads keys in a way of its own: use redis.NewClient or redis.NewClusterClient")
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
	t.inside = &link.Inside{Runner: runner, Scripts: t.shards, Commits: t.commits, Gather: t.gather, NoWakeUps: cfg.NoWakeUps}
	if !cfg.NoRegistration {
		t.inside.Processes = process.New(client, cfg.Namespace, cfg.Logger)
	}
	t.linked = link.NewPoint(t.inside)
	return t, nil
}

// notePlan lists a compiled plan for operators, see `luatx scripts --plans`.
func (t *Transactor) notePlan(plan shard.Plan) {
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := t.shards.NotePlan(ctx, t.shards.Shard(t.cfg.Keyspace.Slots()[0]), plan); err != nil {
		t.cfg.Logger.Debug("luatx: the use of a compiled script was not noted", "plan", plan.Does, "error", err)
	}
}

// Config returns the configuration with its defaults.
func (t *Transactor) Config() Config { return t.cfg }

// Keyspace returns the keyspace of the configuration.
func (t *Transactor) Keyspace() Keyspace { return t.cfg.Keyspace }

// reading is a look at the server's clock, and the local (monotonic) time it was taken at.
type reading struct{ server, local time.Time }

// drift is how far off the server's clock may be before it is read anew.
const drift = 100 * time.Millisecond

func (t *Transactor) setClock(server time.Time) {
	now := time.Now()
	if d := server.Sub(t.serverTime(now)); d < -drift || d > drift || t.clock.Load() == nil {
		t.clock.Store(&reading{server, now})
	}
}

// serverTime is what the server's clock says at a local time, as far as is known.
func (t *Transactor) serverTime(local time.Time) time.Time {
	if r := t.clock.Load(); r != nil {
		return r.server.Add(local.Sub(r.local))
	}
	return local
}
