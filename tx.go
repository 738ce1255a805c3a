package luatx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// Tx is a transaction that is being recorded. Nothing reaches the server before the commit. Tx is safe for concurrent use until
// its function returns. After that, its methods return ErrTxClosed.
type Tx struct {
	recorded

	t         *Transactor
	tag       string
	aggregate string
	delivery  *delivery
	closed    atomic.Bool
	refused   atomic.Pointer[error] // the first error that prevents the commit
	recorder  record.Recorder
	first     firstKey

	mu         sync.Mutex // locked before the recorder's lock
	reader     *redis.Conn
	guards     []commit.Guard
	guardKeys  []string
	guardBytes int // of the guarded reads' commands
	guardSize  int // of the guarded reads' replies, as Config.GuardBytes counts them
	id         MessageID
	sum        identity.Sum // of the id, once summed is true
	summed     bool
	keep       bool // stores the replies for a retry
	claimed    bool
	events     int // emitted
	entries    int // added to streams by Publish

	home  shard.Shard
	*sent // nil once another transaction may use it
}

// recorded gives the inbox of positions access to the transaction.
type recorded = link.Recording

// sent is the state of a transaction's commit.
type sent struct {
	commit   commit.Commit // Emit adds the events; assemble sets the rest
	cmds     []redis.Cmder
	relay    link.Relay // nil if no relay must be notified
	reserved bool       // the relay has reserved a slot
	err      error      // nil if the outcome is committed
	began    time.Time  // set if there is an Observer

	few    few
	bodies [][]byte // memory for the bodies of events
}

// few is the initial storage for the lists of a commit.
type few struct {
	events   [1]shard.Event
	commands [4]commit.Command
	keys     [4]string
	order    [4]int
	ran      [4]redis.Cmder
}

// maxBodies is the maximum number of bodies whose memory a transaction leaves to the next one.
const maxBodies = 16

// memory is what committed transactions leave to later ones. Without it, the client allocates 4.8 KB for a small message instead
// of 2.5, and the garbage collector takes a third of its CPU time for events of 100 KB.
type memory struct{ free sync.Pool }

// take returns the state of a new transaction.
func (m *memory) take(home shard.Shard) *sent {
	s, ok := m.free.Get().(*sent)
	if !ok {
		s = new(sent)
	}
	s.commit.Shard, s.commit.Events = home, s.few.events[:0]
	return s
}

// reclaim takes the state of a transaction if no one else uses it: the server has replied to the only request, and committed. An
// inline relay keeps the bodies of the events, which it publishes. The transaction has no state afterwards.
func (m *memory) reclaim(tx *Tx) {
	s := tx.sent
	if c := &s.commit; s.err != nil || c.Tries != 1 || c.Unanswered || c.Outcome.State != commit.Committed {
		return
	}
	tx.sent = nil
	clear(s.bodies)
	bodies := s.bodies[:0]
	for _, e := range s.commit.Events {
		if e.Own && s.relay == nil && len(bodies) < maxBodies {
			bodies = append(bodies, e.Body)
		}
	}
	s.commit.Reset()
	s.cmds, s.relay, s.reserved, s.err, s.began, s.few, s.bodies = nil, nil, false, nil, time.Time{}, few{}, bodies
	m.free.Put(s)
}

// spare returns memory for the body of an event, or nil.
func (s *sent) spare() []byte {
	last := len(s.bodies) - 1
	if last < 0 {
		return nil
	}
	body := s.bodies[last]
	s.bodies = slices.Delete(s.bodies, last, last+1)
	return body
}

// Context returns a copy of parent that carries the transaction, for adapters that use CmdableFromContext.
func (tx *Tx) Context(parent context.Context) context.Context {
	return context.WithValue(parent, txKey{}, tx)
}

// Namespace returns the namespace of the Transactor's configuration.
func (tx *Tx) Namespace() string { return tx.t.cfg.Namespace }

// Tag returns the text in the {…} of the transaction's keys.
func (tx *Tx) Tag() string { return tx.tag }

// Key returns a key of the transaction's aggregate, as Keyspace.Key does.
func (tx *Tx) Key(parts ...string) (string, error) {
	return tx.t.cfg.Keyspace.Key(tx.aggregate, parts...)
}

// Pipeline returns the pipeline on which the transaction records its commands. Exec on it returns an error, because the commit
// runs after the transaction's function has returned.
func (tx *Tx) Pipeline() redis.Pipeliner { return &tx.recorder }

// Emit adds an event, which becomes visible with the commit. It returns an error if the event is invalid. The error wraps
// message.ErrEncode if the data cannot be encoded, and message.ErrDecode if Body is not an event. The code that encodes the data
// must not use Tx.
func (tx *Tx) Emit(event Event) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.closed.Load() {
		return ErrTxClosed
	}
	stored, err := event.encode(&tx.t.cfg, tx.nextID(), tx.spare())
	if err != nil {
		return err
	}
	tx.commit.Events = append(tx.commit.Events, stored)
	tx.events++
	return nil
}

// Publish adds a message to a stream with the commit, without an outbox and a relay. The stream's key must share the
// transaction's slot, like all keys: build it with Tx.Key, or with Keyspace.TagKey from Tx.Tag. The entry has the binary format
// of CloudEvents, which a stream.Subscriber reads. The data is encoded as JSON unless it is a []byte or a json.RawMessage. A
// message without an id gets one that is derived from the transaction's id and the message's position; msg itself does not
// change. The error wraps message.ErrEncode if the message cannot be encoded.
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

// EventID returns the id that the next event gets if it has none.
func (tx *Tx) EventID() string {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.nextID()
}

func (tx *Tx) nextID() string {
	return tx.identity().EventID(tx.events)
}

// Claim makes the commit conditional on id: it takes effect only if no other delivery or call has committed the id for the
// transaction's aggregate. The inbox calls it. A transaction has at most one id and must claim it before its first event;
// otherwise Claim returns an error.
func (tx *Tx) Claim(id MessageID) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	switch {
	case tx.closed.Load():
		return ErrTxClosed
	case id.ID == "":
		return errors.New("luatx: the id is empty")
	case tx.claimed:
		return fmt.Errorf("%w: the transaction has an id; use one inbox.Middleware", ErrNested)
	case len(tx.commit.Events) > 0:
		return errors.New("luatx: the id came after an event; put inbox.Middleware before outbox.Middleware")
	}
	tx.id, tx.claimed, tx.summed = id, true, false
	return nil
}

// identity returns the hash from which the inbox id and the ids of events are derived. A message without an aggregate is
// identified within the tag of its stream, written in braces. The caller holds tx.mu.
func (tx *Tx) identity() identity.Sum {
	if !tx.summed {
		aggregate := tx.aggregate
		if aggregate == "" {
			aggregate = "{" + tx.tag + "}"
		}
		tx.sum = identity.ID{Aggregate: aggregate, Scope: tx.id.Scope, Source: tx.id.Source, ID: tx.id.ID}.Sum()
		tx.summed = true
	}
	return tx.sum
}

// position returns the position that the commit moves instead of marking the id, or nil.
func (tx *Tx) position() *commit.Position {
	if claim := link.ClaimOf(tx); claim != nil {
		return &claim.Position
	}
	return nil
}

func (tx *Tx) end() { tx.closed.Store(true) }

type txKey struct{}

// TxFromContext returns the transaction in which a handler runs.
func TxFromContext(ctx context.Context) (*Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*Tx)
	return tx, ok
}

type pipelineKey struct{}

// ContextWithPipeline returns a copy of ctx that carries a pipeline, on which adapters queue their commands.
func ContextWithPipeline(ctx context.Context, pipe redis.Pipeliner) context.Context {
	return context.WithValue(ctx, pipelineKey{}, pipe)
}

// PipelineFromContext returns the pipeline on which a handler's commands are recorded: that of the transaction, or the one from
// ContextWithPipeline.
func PipelineFromContext(ctx context.Context) (redis.Pipeliner, bool) {
	if tx, ok := TxFromContext(ctx); ok {
		return tx.Pipeline(), true
	}
	pipe, ok := ctx.Value(pipelineKey{}).(redis.Pipeliner)
	return pipe, ok
}

// CmdableFromContext returns the client on which an adapter issues its commands. Inside a transaction or a pipeline, commands are
// recorded. Otherwise fallback executes them.
func CmdableFromContext(ctx context.Context, fallback redis.Cmdable) redis.Cmdable {
	if pipe, ok := PipelineFromContext(ctx); ok {
		return pipe
	}
	return fallback
}

// Queued returns the error of a command whose reply the caller does not need. It returns nil for a recorded command that has no
// reply yet. A common case is a counter:
//
//	return luatx.Queued(cmdable.HIncrBy(ctx, key, "spent", pence))
func Queued(cmd redis.Cmder) error {
	if err := cmd.Err(); !errors.Is(err, ErrNotCommitted) {
		return err
	}
	return nil
}
