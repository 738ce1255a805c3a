// Package stack assembles the middlewares of a handler in either mode from one config. To change the mode, change one line:
//
//	mw, err := stack.Pipelined(client, cfg)
//	mw, err := stack.Scripted(transactor, cfg)
package stack

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/pipeline"
)

// Config configures a stack. Each mode ignores the fields that only the other one uses.
type Config struct {
	// Destination returns the destination of an output that has none.
	Destination func(*message.Message) (string, error)

	// OrderingKey and At order and schedule outputs; see outbox.Config. Scripted only.
	OrderingKey func(*message.Message) (string, error)
	At          func(*message.Message) (time.Time, error)

	// MessageID returns the identity of a message in both modes; see inbox.Config and pipeline.SetNXConfig. The constructors call
	// it, and MarkKey, with sample messages to compare both modes. Defaults to message.IdentityOf: source and id.
	MessageID func(*message.Message) (message.Identity, error)

	// Scope names the handler for which a message counts once; see inbox.Config. Scripted only.
	Scope string
	// Precheck checks for a duplicate before the handler runs; see inbox.Precheck. Scripted only.
	Precheck bool

	// Retention is how long an id is remembered. Defaults to 24 hours. Pipelined only; scripted mode uses that of the Transactor.
	Retention time.Duration
	// MarkKey returns the key of a message's mark for its identity; see pipeline.SetNXConfig. Pipelined only.
	MarkKey func(message.Identity) string
	// OutboxStream is the key of the stream that events are added to. OutboxStreamFor returns it for the handler's input, which a
	// cluster needs. One of them is required; see pipeline.OutboxConfig. Pipelined only.
	OutboxStream    string
	OutboxStreamFor func(input *message.Message) (string, error)

	// OutboxMarshal returns the fields of an event: outbox.JSON, outbox.MessagePack or a custom function. In pipeline mode, they
	// are the fields of the stream entry. In scripted mode, the event is the result of stream.UnmarshalOutbox for the fields.
	// Defaults to the data as the Engine's Marshaler encodes it, or to JSON outside of an Engine.
	OutboxMarshal func(*message.Message) (map[string]any, error)

	// Overlap is the client for the marks of pipeline mode while a service changes from one mode to the other; see
	// pipeline.Overlap and docs/swap.md. Retention and MarkKey apply to the marks. Defaults to none. Scripted only.
	Overlap redis.UniversalClient
	// RelayElsewhere states that this process intentionally runs no relay. By default, Scripted logs a warning, once, if events
	// were committed and no relay was attached to the Transactor for 10 seconds. Scripted only.
	RelayElsewhere bool

	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Pipelined returns the stack of pipeline mode: SET NX, then MULTI … EXEC, then the acknowledgement by the router. Package
// pipeline describes the gaps of this mode. Pipelined returns an error if MarkKey returns the same key for messages that
// MessageID distinguishes.
func Pipelined(client redis.UniversalClient, cfg Config) (message.Middleware, error) {
	if client == nil {
		return message.Middleware{}, errors.New("stack: Pipelined needs a client")
	}
	if cfg.OutboxStream == "" && cfg.OutboxStreamFor == nil {
		return message.Middleware{}, errors.New("stack: Config.OutboxStream is empty; set the stream of the events")
	}
	if err := cfg.checkMarks(); err != nil {
		return message.Middleware{}, err
	}
	return message.Chain(
		pipeline.SetNX(client, cfg.marks()),
		pipeline.Middleware(client),
		pipeline.Outbox(pipeline.OutboxConfig{
			Stream: cfg.OutboxStream, StreamFor: cfg.OutboxStreamFor, Destination: cfg.Destination,
			MarshalFunc: cfg.OutboxMarshal,
		}),
	), nil
}

// Scripted returns the stack of scripted mode, which commits everything in one script. The script includes the acknowledgement if
// the input stream shares the slot. With Overlap, Scripted returns an error if the two modes would identify messages differently.
func Scripted(t *luatx.Transactor, cfg Config) (message.Middleware, error) {
	if t == nil {
		return message.Middleware{}, errors.New("stack: Scripted needs a Transactor")
	}
	var middlewares []message.Middleware
	if cfg.Overlap != nil {
		if err := cfg.checkMarks(); err != nil {
			return message.Middleware{}, err
		}
		middlewares = append(middlewares, pipeline.Overlap(cfg.Overlap, cfg.marks()))
	}
	middlewares = append(middlewares, luatx.Middleware(t), inbox.Middleware(inbox.Config{Scope: cfg.Scope, MessageID: cfg.MessageID}))
	if cfg.Precheck {
		middlewares = append(middlewares, inbox.Precheck())
	}
	middlewares = append(middlewares, outbox.Middleware(outbox.Config{
		Destination: cfg.Destination, OrderingKey: cfg.OrderingKey, At: cfg.At, MarshalFunc: cfg.OutboxMarshal,
	}))
	if !cfg.RelayElsewhere {
		w := relayWatch{attached: func() bool { return link.Of(t).Relay() != nil }, logger: cmp.Or(cfg.Logger, slog.Default())}
		middlewares = append(middlewares, message.NewMiddleware(w.wrap))
	}
	return message.Chain(middlewares...), nil
}

// marks returns the config of SetNX marks, which both modes use.
func (c Config) marks() pipeline.SetNXConfig {
	return pipeline.SetNXConfig{Retention: c.Retention, MessageID: c.MessageID, MarkKey: c.MarkKey, Logger: c.Logger}
}
