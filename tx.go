package luatx

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/identity"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/record"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// Tx is a transaction that is being recorded. Nothing reaches the server before the commit. It is safe for
// concurrent use until its function returns; then everything on it answers ErrTxClosed.
type Tx struct {
	t         *Transactor
	tag       string
	aggregate string
	delivery  *delivery
	closed    atomic.Bool
	refused   atomic.Pointer[error] // the first thing that may not be committed
	recorder  record.Recorder
	firstKey  string // under the recorder's lock

	mu         sync.Mutex // comes before the recorder's
	reader     *redis.Conn
	guards     []commit.Guard
	guardKeys  []string
	guardBytes int // of the reads
	guardSize  int // of their replies, as Config.GuardBytes counts them
	id         MessageID
	keep       bool // the replies, for a retry
	claimed    bool

	commit commit.Commit // its events come as they are emitted, the rest at the end
	sent
}

// sent is what a transaction knows about its commit.
type sent struct {
	cmds     []redis.Cmder
	relay    link.Relay // nil: nothing to tell a relay
	reserved bool       // a slot of the relay
	err      error      // nil: it is in, as the outcome says
	began    *time.Time // where there is an Observer; a pointer keeps what there is without one small

	few struct { // where the lists of the commit begin
		events   [1]shard.Event
		commands [4]commit.Command
		keys     [4]string
	}
}

// Context returns a context that carries the transaction, for adapters that use CmdableFromContext.
func (tx *Tx) Context(parent context.Context) context.Context {
	return context.WithValue(parent, txKey{}, tx)
}

// Namespace is that of the Transactor's configuration.
func (tx *Tx) Namespace() string { return tx.t.cfg.Namespace }

// Tag is the text in the {…} of the transaction's keys.
func (tx *Tx) Tag() string { return tx.tag }

// Key returns a key of the transaction's aggregate, as Keyspace.Key does.
func (tx *Tx) Key(parts ...string) (string, error) {
	return tx.t.cfg.Keyspace.Key(tx.aggregate, parts...)
}

// Pipeline returns what the transaction's commands are recorded on. Exec on it is an error: the commit comes
// when the transaction's function has returned.
func (tx *Tx) Pipeline() redis.Pipeliner { return &tx.recorder }

// recording is a transaction as its recorder sees it.
type recording Tx

func (r *recording) Record(cmd redis.Cmder) (bool, error) { return (*Tx)(r).record(cmd) }

func (*recording) Exec() error {
	return fmt.Errorf("%w: Exec on a transaction's pipeline: return from its function instead", ErrNested)
}

// Emit adds an event. It becomes visible with the commit.
func (tx *Tx) Emit(event Event) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.closed.Load() {
		return ErrTxClosed
	}
	if event.ID == "" {
		event.ID = tx.identity().EventID(len(tx.commit.Events))
	}
	if err := event.check(&tx.t.cfg); err != nil {
		return err
	}
	tx.commit.Events = append(tx.commit.Events, shard.Event(event))
	return nil
}

// EventID returns the id that the next event is given where it has none.
func (tx *Tx) EventID() string {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.identity().EventID(len(tx.commit.Events))
}

// Claim makes the commit conditional on an id that no other delivery or call has committed for the transaction's
// aggregate. The inbox calls it. A transaction has at most one id, and claims it before its first event.
func (tx *Tx) Claim(id MessageID) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	switch {
	case tx.closed.Load():
		return ErrTxClosed
	case id.ID == "":
		return errors.New("luatx: the id is empty")
	case tx.claimed:
		return fmt.Errorf("%w: the transaction has an id: use one inbox.Middleware", ErrNested)
	case len(tx.commit.Events) > 0:
		return errors.New("luatx: the id came after an event: put inbox.Middleware before outbox.Middleware")
	}
	tx.id, tx.claimed = id, true
	return nil
}

// identity is what the inbox and the ids of events are derived from. A message without an aggregate is identified within
// the tag of its stream, which is written in braces.
func (tx *Tx) identity() identity.ID {
	aggregate := tx.aggregate
	if aggregate == "" {
		aggregate = "{" + tx.tag + "}"
	}
	return identity.ID{Aggregate: aggregate, Scope: tx.id.Scope, Source: tx.id.Source, ID: tx.id.ID}
}

// Seen asks the server whether the claimed id has been committed already. It decides nothing, the commit does;
// it spares a handler with outside effects a run that would be a duplicate.
func (tx *Tx) Seen(ctx context.Context) (bool, error) {
	tx.mu.Lock()
	claimed, digest := tx.claimed, tx.identity().Digest()
	tx.mu.Unlock()
	if !claimed {
		return false, nil
	}
	ctx, cancel := tx.lookup(ctx)
	defer cancel()
	state, text, _, err := tx.t.commits.Resolve(ctx, tx.commit.Shard, digest, "", time.Time{})
	switch {
	case err != nil:
		return false, err
	case state == commit.Broken:
		return false, &RollbackError{text}
	case state == commit.Identity:
		return false, outcomeError(&commit.Outcome{State: state, Text: text}, tx)
	}
	return state == commit.Replayed || state == commit.Duplicate, nil
}

// known is Seen for a handler that has failed: its error may come from the id's having been committed.
func (tx *Tx) known(ctx context.Context) bool {
	seen, err := tx.Seen(ctx)
	if err != nil {
		tx.t.cfg.Logger.Warn("luatx: the handler failed and its id could not be looked up", "error", err)
	}
	return seen
}

// lookup bounds a question about the transaction's id. A delivery must be settled, so it asks even where its
// context has ended; a caller decides for itself how long it waits.
func (tx *Tx) lookup(ctx context.Context) (context.Context, context.CancelFunc) {
	if tx.delivery.msg != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return context.WithTimeout(ctx, resolveTimeout)
}

func (tx *Tx) close() { tx.closed.Store(true) }

// record is called for each command, under the recorder's lock: what passes here before the transaction closes is in
// the commit.
func (tx *Tx) record(cmd redis.Cmder) (bool, error) {
	if tx.closed.Load() {
		return false, ErrTxClosed
	}
	decides, err := tx.admit(cmd.Args())
	if err != nil {
		tx.refuse(err) // an adapter may not look at it
		return false, err
	}
	if decides {
		return true, ErrNotCommitted
	}
	return true, nil
}

// refuse keeps the first error that stands against the commit.
func (tx *Tx) refuse(err error) { tx.refused.CompareAndSwap(nil, &err) }

// admit checks a command that is to be recorded, and tells whether its caller needs the reply.
func (tx *Tx) admit(args []any) (bool, error) {
	if len(args) > 0 && args[0] == callCommand {
		return true, tx.checkCall(args)
	}
	spec, err := tx.check(args)
	return spec.Decides, err
}

func (tx *Tx) check(args []any) (command.Spec, error) {
	spec, err := command.Lookup(args)
	if err == nil {
		err = spec.Check(args)
	}
	if err != nil {
		return spec, fmt.Errorf("%w: %w", ErrCommandRefused, err)
	}
	if len(args) > maxArgs {
		return spec, fmt.Errorf("%w: %s has %d arguments, more than %d: split it", ErrTooLarge, spec.Name, len(args), maxArgs)
	}
	keys, err := spec.Keys(args)
	if err != nil {
		return spec, fmt.Errorf("%w: %w", ErrCommandRefused, err)
	}
	for _, i := range keys {
		if err := tx.checkKey(spec.Name, args[i]); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

func (tx *Tx) checkKey(name string, arg any) error {
	key, ok := text(arg)
	switch {
	case !ok || key == "":
		return fmt.Errorf("%w: %s has the key %#v: use a text that is not empty", ErrCommandRefused, name, arg)
	case slot.Of(key) != tx.commit.Shard.Slot:
		return tx.crossSlot(name, key)
	case tx.commit.Shard.Owns(key) && !isOwn(arg):
		return fmt.Errorf("%w: %s: key %q is luatx's own: choose another namespace or prefix", ErrCommandRefused, name, key)
	}
	if tx.firstKey == "" {
		tx.firstKey = key
	}
	return nil
}

// crossSlot names what does not go together: the key, and the tag of the transaction with its first key, if any.
func (tx *Tx) crossSlot(name, key string) error {
	home := "tag {" + tx.tag + "}"
	if tx.firstKey != "" {
		home = fmt.Sprintf("key %q and %s", tx.firstKey, home)
	}
	return fmt.Errorf("%w: %s: key %q hashes to slot %d, %s of the transaction to slot %d", ErrCrossSlot, name, key, slot.Of(key), home, tx.commit.Shard.Slot)
}

func text(arg any) (string, bool) {
	switch v := arg.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	case shard.Own:
		return string(v), true
	}
	return "", false
}

// isOwn reports whether luatx itself names a key of the shard.
func isOwn(arg any) bool {
	_, own := arg.(shard.Own)
	return own
}

// commandError finds the command that a script's failure speaks of.
func (tx *Tx) commandError(out *commit.Outcome) error {
	switch {
	case out.Index <= 0 && denied(out.Text): // of what luatx itself runs
		return refused(out.Text, nil)
	case out.Index < 0:
		return &CommandError{Index: out.Index, Text: out.Text}
	case out.Index == 0:
		return fmt.Errorf("luatx: the commit script failed and was undone: %s", out.Text)
	}
	failed := &CommandError{Index: out.Index - 1, Text: tx.t.commits.Locate(out.Text)}
	if denied(out.Text) {
		failed.Remedy = remedies["NOPERM"]
	}
	if cmds := tx.recorder.Cmds(); failed.Index >= 0 && failed.Index < len(cmds) {
		failed.Command = cmds[failed.Index].Name()
	}
	return failed
}
