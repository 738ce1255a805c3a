package luatx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/identity"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/record"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/streamentry"
	"github.com/luatx/luatx/message"
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
	entries    int // added to streams by Publish

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
		order    [4]int
		ran      [4]redis.Cmder
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

// Emit adds an event. It becomes visible with the commit. The error says what is wrong with the event, and wraps
// message.ErrEncode if its data cannot be encoded and message.ErrDecode if its body is no event. Tx must not be used by what
// encodes the data.
func (tx *Tx) Emit(event Event) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.closed.Load() {
		return ErrTxClosed
	}
	stored, err := event.encode(&tx.t.cfg, tx.nextID())
	if err != nil {
		return err
	}
	tx.commit.Events = append(tx.commit.Events, stored)
	return nil
}

// Publish adds a message to a stream with the commit, without an outbox and a relay. The key of the stream must share the
// transaction's slot, as all keys do: build it by Key, or by Keyspace.TagKey of Tag. The entry has the binary format of
// CloudEvents, which a stream.Subscriber reads. A message without an id gets one that is derived from the transaction's id and
// the message's position; msg stays as it is. The data is encoded as JSON unless it is a []byte or a json.RawMessage. Errors
// wrap message.ErrEncode if the message cannot be encoded.
func (tx *Tx) Publish(stream string, msg *message.Message) error {
	entry, err := tx.entry(msg)
	if err != nil {
		return fmt.Errorf("luatx: publish to %q: %w", stream, err)
	}
	fields, err := streamentry.AppendBinary(make([]any, 0, streamentry.BinarySize(entry)), entry)
	if err != nil {
		return fmt.Errorf("luatx: publish to %q: message %s: %w", stream, entry.ID(), err)
	}
	return Queued(tx.Pipeline().XAdd(context.Background(), &redis.XAddArgs{Stream: stream, Values: fields}))
}

// entry encodes a message for a stream.
func (tx *Tx) entry(msg *message.Message) (*message.RawMessage, error) {
	if msg == nil {
		return nil, errors.New("the message is nil")
	}
	attrs := maps.Clone(msg.Attributes)
	if attrs == nil {
		attrs = message.Attributes{}
	}
	var data []byte
	switch d := msg.Data.(type) {
	case nil:
	case []byte:
		data = d
	case json.RawMessage:
		data = d
	default:
		var marshaler message.JSONMarshaler
		var err error
		if data, err = marshaler.Marshal(d); err != nil {
			return nil, fmt.Errorf("%w: data of type %T: %w", message.ErrEncode, d, err)
		}
		attrs[message.AttrDataContentType] = marshaler.ContentType()
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if attrs.ID() == "" {
		attrs[message.AttrID] = tx.identity().EntryID(tx.entries)
	}
	tx.entries++
	return message.NewRaw(data, attrs, nil), nil
}

// EventID returns the id that the next event is given where it has none.
func (tx *Tx) EventID() string {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.nextID()
}

func (tx *Tx) nextID() string {
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

func (tx *Tx) end() { tx.closed.Store(true) }

type txKey struct{}

// TxFromContext returns the transaction that a handler runs in.
func TxFromContext(ctx context.Context) (*Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*Tx)
	return tx, ok
}

type pipelineKey struct{}

// ContextWithPipeline returns a context that carries a pipeline: adapters queue their commands on it.
func ContextWithPipeline(ctx context.Context, pipe redis.Pipeliner) context.Context {
	return context.WithValue(ctx, pipelineKey{}, pipe)
}

// PipelineFromContext returns what a handler's commands are recorded on: the transaction's pipeline, or the one
// that ContextWithPipeline put there.
func PipelineFromContext(ctx context.Context) (redis.Pipeliner, bool) {
	if tx, ok := TxFromContext(ctx); ok {
		return tx.Pipeline(), true
	}
	pipe, ok := ctx.Value(pipelineKey{}).(redis.Pipeliner)
	return pipe, ok
}

// CmdableFromContext returns what an adapter issues its commands on: inside a transaction or a pipeline they
// are recorded, elsewhere fallback executes them.
func CmdableFromContext(ctx context.Context, fallback redis.Cmdable) redis.Cmdable {
	if pipe, ok := PipelineFromContext(ctx); ok {
		return pipe
	}
	return fallback
}

// Queued returns the error of a command whose reply the caller does not need: a command that was recorded and
// has no reply yet is none. Counters are the common case:
//
//	return luatx.Queued(cmdable.HIncrBy(ctx, key, "spent", pence))
func Queued(cmd redis.Cmder) error {
	if err := cmd.Err(); !errors.Is(err, ErrNotCommitted) {
		return err
	}
	return nil
}
