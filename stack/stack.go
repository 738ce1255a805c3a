// Package stack assembles the middlewares of a handler in either mode from one config. Changing the mode is
// changing one line:
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

// Config configures a stack. What only one mode needs, the other one ignores.
type Config struct {
	// Destination names where an output is to be published, for outputs that do not say so themselves.
	Destination func(*message.Message) (string, error)

	// OrderingKey and At order and schedule outputs. Scripted only: see outbox.Config.
	OrderingKey func(*message.Message) (string, error)
	At          func(*message.Message) (time.Time, error)

	// MessageID returns the identity of a message, in both modes: see inbox.Config and pipeline.SetNXConfig. The constructors
	// call it, and MarkKey, with messages of their own to compare both modes. Defaults to message.IdentityOf: source and id.
	MessageID func(*message.Message) (message.Identity, error)

	// Scope names what a message is applied by. Scripted only: see inbox.Config.
	Scope string
	// Precheck looks a message up before its handler runs. Scripted only: see inbox.Precheck.
	Precheck bool

	// Retention is how long an id is known. Defaults to 24 hours. Pipelined only: in the scripted mode it is the
	// Transactor's.
	Retention time.Duration
	// MarkKey names the key of a message's mark, by its identity. Pipelined only: see pipeline.SetNXConfig.
	MarkKey func(message.Identity) string
	// OutboxStream is the key that events are added to; OutboxStreamFor names it by the handler's input, which a
	// cluster needs. One of them is required. Pipelined only: see pipeline.OutboxConfig.
	OutboxStream    string
	OutboxStreamFor func(input *message.Message) (string, error)

	// OutboxMarshal makes the fields of an event: outbox.JSON, outbox.MessagePack or a function of your own. Pipelined, the
	// fields are those of the stream's entry; Scripted, the event is what stream.UnmarshalOutbox makes of them. Defaults to
	// the data as the Engine's Marshaler encodes it, and JSON outside of an Engine.
	OutboxMarshal func(*message.Message) (map[string]any, error)

	// Overlap is the client of the pipeline mode's marks, while a service changes from one mode to the other; see
	// pipeline.Overlap and docs/swap.md. Defaults to none. Scripted only; Retention and MarkKey are those of the marks.
	Overlap redis.UniversalClient
	// RelayElsewhere says that no relay runs in this process on purpose. Defaults to a warning, once, where events
	// were committed and no relay was attached to the Transactor for 10 seconds. Scripted only.
	RelayElsewhere bool

	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Pipelined returns the stack of pipeline mode: SET NX, then MULTI … EXEC, then the acknowledgement by the router. Package
// pipeline describes its gaps. Pipelined returns an error if MarkKey returns one key for messages that MessageID
// distinguishes.
func Pipelined(client redis.UniversalClient, cfg Config) (message.Middleware, error) {
	if client == nil {
		return message.Middleware{}, errors.New("stack: Pipelined needs a client")
	}
	if cfg.OutboxStream == "" && cfg.OutboxStreamFor == nil {
		return message.Middleware{}, errors.New("stack: Config.OutboxStream is empty: name the stream that takes the events")
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

// Scripted commits everything, the acknowledgement included where the input shares the slot, in one script. With Overlap it
// returns an error if the two modes would identify messages differently, as Pipelined does.
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

// marks configures what both modes do about the marks of SetNX.
func (c Config) marks() pipeline.SetNXConfig {
	return pipeline.SetNXConfig{Retention: c.Retention, MessageID: c.MessageID, MarkKey: c.MarkKey, Logger: c.Logger}
}
