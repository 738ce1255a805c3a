package luatx

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/record"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

// layout is the version of the keys of a shard.
const layout = 2

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

	checks  shared
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
	t.inside = &link.Inside{Runner: runner, Scripts: t.shards, Commits: t.commits, Gather: t.gather, NoWakeUps: cfg.NoWakeUps}
	t.linked = link.NewPoint(t.inside)
	return t, nil
}

// Config returns the configuration with its defaults.
func (t *Transactor) Config() Config { return t.cfg }

// Keyspace returns the keyspace of the configuration.
func (t *Transactor) Keyspace() Keyspace { return t.cfg.Keyspace }

// Outcome says how a transaction came to be committed.
type Outcome int

// The outcomes. The zero value stands beside an error: nothing was committed.
const (
	// Committed now.
	Committed Outcome = iota + 1
	// Replayed: an earlier request of the same call or delivery had committed. The effect is there once.
	Replayed
	// Duplicate: another call or delivery with the same id had committed. The effect is there once, and is not
	// this one's.
	Duplicate
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	if o < Committed || o > Duplicate {
		return "not committed"
	}
	return [...]string{"committed", "replayed", "duplicate"}[o-1]
}

// Result is what a successful transaction returns.
type Result struct {
	// Outcome says whether this call committed, or an earlier one had.
	Outcome Outcome
	// Replicated says that the effect has reached what Config.Durability asks for; false where it asks for
	// nothing, or where that is not known.
	Replicated bool
}

// Option changes one call of Transact.
type Option func(*options)

type options struct {
	id   MessageID
	keep bool
}

// WithID makes the call idempotent: calls with the same id on the same aggregate have their effect once within
// the retention. Without an id every call is a new one, though it is still committed once.
func WithID(id string) Option {
	return func(o *options) { o.id = MessageID{Scope: "transact", ID: id} }
}

// KeepReplies keeps the replies of the call's commands beside its id, for the retention: a call that is answered
// Replayed or Duplicate then finds the first one's replies in its own commands, provided that it records as many.
// It needs WithID. More than Config.KeepBytes are not kept: such commands answer ErrRepliesLost.
func KeepReplies() Option {
	return func(o *options) { o.keep = true }
}

// Transact runs fn and commits what it recorded: commands, events and the mark of its id, whole or not at all.
// Every key must share the slot of the aggregate's tag. An error of fn commits nothing and is returned as it
// is. The commit's errors are the ones in this package; each says what to do. Where what fn has read by Tx.Read
// changes before the commit fn runs again, on a new Tx, up to Config.ConflictRetries times.
//
// An id that is known already does not keep fn from running: the commit decides. Where fn fails and its id is
// known, Transact answers Duplicate and no error.
func (t *Transactor) Transact(ctx context.Context, aggregate string, fn func(*Tx) error, opts ...Option) (Result, error) {
	c, err := t.newCall(ctx, aggregate, fn, opts)
	if err != nil {
		return Result{}, err
	}
	for n := 0; ; n++ {
		tx, result, err := t.run(ctx, c)
		if tx != nil {
			t.send(ctx, []*Tx{tx})
			result, err = t.finish(ctx, tx)
		}
		if again, err := t.again(ctx, n, err); !again {
			return result, err
		}
	}
}

// begin opens a transaction on a tag.
func (t *Transactor) begin(tag, aggregate string, d *delivery) *Tx {
	tx := &Tx{
		t:         t,
		tag:       tag,
		aggregate: aggregate,
		commit:    commit.Commit{Shard: t.shards.Shard(slot.OfTag(tag))},
		delivery:  d,
		id:        MessageID{ID: d.base()},
	}
	tx.commit.Events = tx.few.events[:0]
	t.source.Init(&tx.recorder, (*recording)(tx))
	return tx
}

// tagOf names the tag and the aggregate of a message.
func (t *Transactor) tagOf(msg *message.Message) (tag, aggregate string, err error) {
	aggregate, err = t.cfg.Aggregate(msg)
	if err != nil {
		return "", "", fmt.Errorf("luatx: Config.Aggregate: %w", err)
	}
	if aggregate != "" {
		tag, err = t.cfg.Keyspace.Tag(aggregate)
		return tag, aggregate, err
	}
	if source, ok := msg.InputSource(); ok {
		if tag, ok := tagIn(source.Stream); ok {
			return tag, "", nil
		}
	}
	return "", "", fmt.Errorf("luatx: message %q has no aggregate: set its subject, or Config.Aggregate", msg.ID())
}
