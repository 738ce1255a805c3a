package watermill

import (
	"cmp"
	"context"
	"errors"
	"sync"

	wm "github.com/ThreeDotsLabs/watermill/message"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// MiddlewareConfig configures Middleware. The zero value is usable.
type MiddlewareConfig struct {
	// Scope names the handler for which a message counts once. Defaults to the handler's name in Watermill's router.
	Scope string
	// Source is the source of messages without one in their metadata. Defaults to the topic from which they were read.
	Source string
	// Destination is the destination of outputs without one in their metadata. Defaults to the handler's topic in Watermill's
	// router.
	Destination string
}

// Middleware runs a Watermill handler in a transaction on the aggregate of its message, as returned by luatx.Config.Aggregate;
// the metadata of the message are its attributes. Commands on luatx.CmdableFromContext of the message's context are recorded. A
// message counts once, by its UUID and source. The messages that the handler returns become events in the same script, which a
// relay publishes (see Relay). Watermill's router publishes nothing.
//
// If the message is from this package's Subscriber and its stream shares the transaction's slot, the script also acknowledges it.
func Middleware(t *luatx.Transactor, cfg MiddlewareConfig) (wm.HandlerMiddleware, error) {
	if t == nil {
		return nil, errors.New("watermill: Middleware needs a Transactor")
	}
	return func(next wm.HandlerFunc) wm.HandlerFunc {
		h := &handler{t: t, cfg: cfg, next: next}
		return func(msg *wm.Message) ([]*wm.Message, error) { return nil, h.run(msg) }
	}, nil
}

// handler adapts a Watermill handler to an Engine.
type handler struct {
	t    *luatx.Transactor
	cfg  MiddlewareConfig
	next wm.HandlerFunc

	once   sync.Once
	engine *message.Engine
	err    error
}

type messageKey struct{}

// build creates the engine for the first message, which provides the name of the handler.
func (h *handler) build(name string) {
	scope := cmp.Or(h.cfg.Scope, name, "watermill")
	h.engine = message.NewEngine(message.EngineConfig{})
	h.err = errors.Join(
		h.engine.Router().Use(luatx.Middleware(h.t), inbox.Middleware(inbox.Config{Scope: scope}), outbox.Middleware(outbox.Config{})),
		h.engine.AddHandler(scope, nil, h),
	)
}

func (h *handler) run(msg *wm.Message) error {
	ctx := msg.Context()
	if h.once.Do(func() { h.build(wm.HandlerNameFromCtx(ctx)) }); h.err != nil {
		return h.err
	}
	if msg.UUID == "" {
		return errors.New("watermill: the message has no UUID; set a UUID that identifies it")
	}
	raw, err := ToRaw(msg, cmp.Or(h.cfg.Source, wm.SubscribeTopicFromCtx(ctx), "watermill"))
	if err != nil {
		return err
	}
	raw.WithValue(messageKey{}, msg)
	settled := settle(raw, msg)
	_, err = h.engine.Process(ctx, raw)
	<-raw.Settled()
	settled()
	return err
}

// settle sets an acking that does not notify the source, because Watermill acks the message. The returned function applies the
// effect of the commit on the entry.
func settle(raw *message.RawMessage, msg *wm.Message) func() {
	read, ours := rawOf(msg)
	settled, committed, released := false, false, false
	acking := message.AckingConfig{
		Ack:     func() { settled = true },
		Nack:    func(error) { settled = true },
		Release: func() { settled, released = true, true },
		Settled: func() { committed = !settled },
	}
	if ours {
		acking.Source, _ = read.InputSource()
	}
	raw.SetAcking(message.NewAckingFrom(acking))
	return func() {
		switch {
		case !ours:
		case committed:
			read.Acknowledged()
		case released:
			read.Release()
		}
	}
}

// EventType implements message.Handler: every type.
func (h *handler) EventType() string { return "" }

// NewInput implements message.Handler: the unchanged payload.
func (h *handler) NewInput() any { return new([]byte) }

// Handle implements message.Handler.
func (h *handler) Handle(ctx context.Context, in *message.Message) ([]*message.Message, error) {
	msg, ok := ctx.Value(messageKey{}).(*wm.Message)
	if !ok {
		return nil, errors.New("watermill: acknowledge in commit: the message is not from the Subscriber of this package")
	}
	before := msg.Context()
	msg.SetContext(ctx)
	defer msg.SetContext(before)
	outputs, err := h.next(msg)
	if err != nil {
		return nil, err
	}
	events := make([]*message.Message, len(outputs))
	for i, out := range outputs {
		raw, err := ToRaw(out, in.Source())
		if err != nil {
			return nil, err
		}
		if to := cmp.Or(h.cfg.Destination, wm.PublishTopicFromCtx(ctx)); raw.Destination() == "" && to != "" {
			raw.Attributes[message.AttrDestination] = to
		}
		events[i] = message.New(raw.Data, raw.Attributes, nil)
	}
	return events, nil
}
