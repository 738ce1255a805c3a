package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/inbound"
	"github.com/luatx/luatx/internal/piped"
	"github.com/luatx/luatx/message"
)

// finishTimeout bounds the work after the end of a context, such as the last batch of a Publisher.
const finishTimeout = 5 * time.Second

// defaultMaxBytes is the default bound of an entry, and of the data that a codec decodes.
const defaultMaxBytes = 64 << 20

// maxIdempotencyWindow is the longest window that Redis allows.
const maxIdempotencyWindow = 24 * time.Hour

// ErrTooLarge is the error for a message that exceeds PublisherConfig.MaxBytes.
var ErrTooLarge = errors.New("stream: the message is too large")

// PublisherConfig configures a Publisher. Either Stream or StreamFor is required.
type PublisherConfig struct {
	// Stream is the key of the stream.
	Stream string
	// StreamFor returns the stream of a message, for example by its destination.
	StreamFor func(*message.RawMessage) (string, error)
	// Aggregate returns the aggregate of a message, which decides its partition. Only NewPartitionedPublisher uses it.
	// Defaults to the subject there.
	Aggregate func(*message.RawMessage) (string, error)
	// MaxLen is the number of entries that a stream keeps. Older entries are trimmed, read or not. Defaults to 0: all entries.
	MaxLen int64
	// ExactTrim trims to MaxLen exactly. Without it, streams keep somewhat more, and trimming needs hardly any time of the
	// server. Defaults to false.
	ExactTrim bool
	// TrimAcked trims entries that every group of the stream has read and acknowledged. It trims after a write, at most once
	// per TrimInterval for each stream. A stream without groups keeps all entries. So does a stream with an abandoned group,
	// until the group is destroyed. Groups that are created later cannot read trimmed entries. It excludes MaxLen. See the
	// function TrimAcked. Defaults to false.
	TrimAcked bool
	// TrimInterval is the minimum time between two trims of a stream. Defaults to 1 s.
	TrimInterval time.Duration
	// IdempotencyWindow is how long a stream recognizes a message that is written again, and does not add it twice. It needs
	// Redis 8.6 and a Producer. A stream remembers at most the last 10,000 messages of a producer. If the stream already has a
	// longer window, that one stays. Defaults to 5 minutes; at least 1 s and at most 24 h. If it is negative, every write adds
	// an entry.
	IdempotencyWindow time.Duration
	// Producer returns the name of the producer of a message. Within IdempotencyWindow a stream adds one entry for all
	// messages with the same producer and id. If Producer returns "", every write of the message adds an entry. By default,
	// the producer of an event that a relay publishes is its namespace and shard, unless relay.Config.KeepSentBodies is set or
	// SentRetention is shorter than IdempotencyWindow. By default, other messages have no producer.
	Producer func(*message.RawMessage) string
	// MaxBytes bounds an entry, as the sum of the names and values of its fields. Larger messages fail with ErrTooLarge.
	// Defaults to 64 MiB.
	MaxBytes int
	// Codecs change the data of every message before it is written, one after another. At most 2. Defaults to none.
	Codecs []Codec
	// Marshal encodes a message as a list of fields and values. Defaults to Binary.
	Marshal func(*message.RawMessage) ([]any, error)
	// BatchSize is the maximum number of waiting messages that Publish writes at once. Defaults to 100.
	BatchSize int
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

func (c PublisherConfig) withDefaults() PublisherConfig {
	c.BatchSize = cmp.Or(c.BatchSize, 100)
	c.TrimInterval = cmp.Or(c.TrimInterval, time.Second)
	c.IdempotencyWindow = cmp.Or(c.IdempotencyWindow, 5*time.Minute)
	c.MaxBytes = cmp.Or(c.MaxBytes, defaultMaxBytes)
	c.Codecs = slices.Clone(c.Codecs)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c PublisherConfig) validate() error {
	f := flaws{config: "PublisherConfig"}
	f.check((c.Stream == "") == (c.StreamFor == nil), "Stream", "and StreamFor: set exactly one of them")
	f.check(c.Aggregate != nil, "Aggregate", "is for partitions: use NewPartitionedPublisher")
	f.check(c.MaxLen < 0, "MaxLen", "is negative; use 0 to keep all entries")
	f.check(c.TrimAcked && c.MaxLen > 0, "TrimAcked", "keeps what was not acknowledged, MaxLen does not: set one of them")
	f.check(c.TrimInterval < 0, "TrimInterval", "is negative; use 0 for the default")
	f.check(c.IdempotencyWindow > 0 && c.IdempotencyWindow < time.Second || c.IdempotencyWindow > maxIdempotencyWindow,
		"IdempotencyWindow", "is not between 1s and 24h; use 0 for the default, or a negative one for none")
	f.check(c.MaxBytes < 0, "MaxBytes", "is negative; use 0 for the default")
	f.checkCodecs(c.Codecs)
	f.check(c.BatchSize < 0, "BatchSize", "is negative; use 0 for the default")
	return f.err()
}

// Publisher writes messages to Redis Streams, at least once. If a reply is lost, the client writes again with the same id.
// On Redis 8.6 and later, a stream adds a message of a known producer once within PublisherConfig.IdempotencyWindow.
// Several goroutines may use a Publisher at once.
type Publisher struct {
	client  redis.UniversalClient
	cfg     PublisherConfig
	windows windows
	trimmer
}

// NewPublisher returns a Publisher. It does no I/O and never closes the client. It returns an error if client is nil or cfg
// is invalid.
func NewPublisher(client redis.UniversalClient, cfg PublisherConfig) (*Publisher, error) {
	if client == nil {
		return nil, errors.New("stream: the client of the Publisher is nil")
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Publisher{client: client, cfg: cfg}, nil
}

// Send writes the messages in one pipeline, in their order for each stream. It settles none of them. It returns nil if all
// were written, and otherwise an error or nil for each message. A message without an id gets one. The error is permanent
// (message.IsPermanent) if the message cannot be encoded, is too large or has no stream. After any other error, such as the
// end of ctx, the message may have been written all the same.
func (p *Publisher) Send(ctx context.Context, msgs ...*message.RawMessage) []error {
	errs := make([]error, len(msgs))
	adds := make([][]any, len(msgs))
	for i, msg := range msgs {
		args, err := p.entry(ctx, msg)
		if err != nil {
			errs[i] = message.Permanent(err)
			continue
		}
		adds[i] = args
	}
	p.settleIdempotence(ctx, adds, errs)
	cmds := p.add(ctx, adds)
	p.addPlain(ctx, adds, cmds)
	p.trimWritten(ctx, cmds)
	written := true
	for i, cmd := range cmds {
		if cmd != nil && cmd.Err() != nil {
			errs[i] = fmt.Errorf("stream: write: %w", cmd.Err())
		}
		written = written && errs[i] == nil
	}
	if written {
		return nil
	}
	return errs
}

// add sends the commands in one pipeline. It skips nil commands.
func (p *Publisher) add(ctx context.Context, adds [][]any) []*redis.StringCmd {
	cmds := make([]*redis.StringCmd, len(adds))
	pipe := p.client.Pipeline()
	for i, args := range adds {
		if args != nil {
			cmds[i] = redis.NewStringCmd(ctx, args...)
			_ = pipe.Process(ctx, cmds[i]) // queues the command
		}
	}
	if pipe.Len() > 0 {
		// Each command has its own error, even if the whole pipeline could not be sent.
		_, _ = piped.Exec(ctx, pipe)
	}
	return cmds
}

// entry returns the XADD command of a message.
func (p *Publisher) entry(ctx context.Context, msg *message.RawMessage) (args []any, err error) {
	if msg == nil {
		return nil, errors.New("stream: the message is nil")
	}
	defer inbound.RecoverTo(&err)
	if msg.ID() == "" {
		if msg.Attributes == nil {
			msg.Attributes = message.Attributes{}
		}
		msg.Attributes[message.AttrID] = message.NewID()
	}
	key := p.cfg.Stream
	if p.cfg.StreamFor != nil {
		if key, err = p.cfg.StreamFor(msg); err != nil {
			return nil, fmt.Errorf("stream: no stream for message %s: %w", msg.ID(), err)
		}
	}
	if key == "" {
		return nil, fmt.Errorf("stream: no stream for message %s: StreamFor returned an empty key", msg.ID())
	}
	encoded, err := encode(p.cfg.Codecs, msg)
	if err != nil {
		return nil, fmt.Errorf("stream: message %s: %w", msg.ID(), err)
	}
	args = append(make([]any, 0, xaddHead+binarySize(encoded)), "xadd", key)
	if name := p.producerOf(ctx, msg); name != "" {
		args = append(args, "idmp", name, msg.ID())
	}
	if p.cfg.MaxLen > 0 {
		args = append(args, "maxlen", trimMode(p.cfg.ExactTrim), p.cfg.MaxLen)
	}
	args = append(args, "*")
	head := len(args)
	if args, err = p.cfg.appendFields(args, encoded); err == nil {
		err = p.checkFields(args[head:])
	}
	if err != nil {
		return nil, fmt.Errorf("stream: message %s: %w", msg.ID(), err)
	}
	return args, nil
}

// xaddHead is the number of arguments before the fields: XADD key IDMP producer id MAXLEN ~ n *.
const xaddHead = 9

func (c *PublisherConfig) appendFields(args []any, msg *message.RawMessage) ([]any, error) {
	if c.Marshal == nil {
		return appendBinary(args, msg)
	}
	fields, err := c.Marshal(msg)
	return append(args, fields...), err
}

// checkFields returns an error for fields that the client or the server would reject. The client would fail the whole
// pipeline.
func (p *Publisher) checkFields(fields []any) error {
	if len(fields) == 0 || len(fields)%2 != 0 {
		return fmt.Errorf("%w: Marshal returned %d fields and values, want pairs", message.ErrEncode, len(fields))
	}
	size := 0
	for _, v := range fields {
		switch v := v.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		case bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
			size += 8 // roughly
		default:
			return fmt.Errorf("%w: Marshal returned a %T, want text, bytes, a number or a boolean", message.ErrEncode, v)
		}
	}
	if size > p.cfg.MaxBytes {
		return fmt.Errorf("%w: %d bytes, PublisherConfig.MaxBytes is %d", ErrTooLarge, size, p.cfg.MaxBytes)
	}
	return nil
}

// Publish writes the messages from in, up to BatchSize waiting ones at once. It never waits to fill a batch. It acks a
// message when it is written. Otherwise, it nacks the message with the error, and logs the error if the message has no
// acking.
//
// Publish closes the returned channel when in is closed or ctx has ended, and all received messages are settled. When ctx
// ends, messages left in the channel stay with the sender. The returned error is always nil.
func (p *Publisher) Publish(ctx context.Context, in <-chan *message.RawMessage) (<-chan struct{}, error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			batch := p.waiting(ctx, in)
			if len(batch) == 0 {
				return
			}
			p.write(ctx, batch)
		}
	}()
	return done, nil
}

// waiting returns at least one message, or none when in is closed or ctx has ended.
func (p *Publisher) waiting(ctx context.Context, in <-chan *message.RawMessage) []*message.RawMessage {
	if ctx.Err() != nil {
		return nil
	}
	var batch []*message.RawMessage
	select {
	case <-ctx.Done():
		return nil
	case msg, ok := <-in:
		if !ok {
			return nil
		}
		batch = append(batch, msg)
	}
	for len(batch) < p.cfg.BatchSize {
		select {
		case msg, ok := <-in:
			if !ok {
				return batch
			}
			batch = append(batch, msg)
		default:
			return batch
		}
	}
	return batch
}

// write continues after the end of the context, because the messages have been received and the outcome of an interrupted
// write would be unknown.
func (p *Publisher) write(ctx context.Context, batch []*message.RawMessage) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	errs := p.Send(detached, batch...)
	for i, msg := range batch {
		switch {
		case msg == nil:
			p.cfg.Logger.ErrorContext(ctx, "stream: nil message not published")
		case errs == nil || errs[i] == nil:
			msg.Ack()
		case !msg.Nack(errs[i]):
			p.cfg.Logger.ErrorContext(ctx, "stream: message not published", "id", msg.ID(), "error", errs[i])
		}
	}
}
