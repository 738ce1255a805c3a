package message

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// AckStrategy determines who acknowledges a message, and when.
type AckStrategy int

const (
	// AckOnSuccess acks if the handler and the middlewares return no error, and nacks otherwise. A Pipe acks after its outputs
	// were delivered, and nacks if they were not because it stopped.
	AckOnSuccess AckStrategy = iota
	// AckManual leaves the settlement to the handler, now or later. The Router only nacks a message that is not settled yet after
	// an error, because the handler may never have seen it.
	AckManual
	// AckForward acks the input when all outputs were acked, or at once if there are none. It nacks the input at an error, and at
	// the first nack of an output. Outputs without in-process values get those of the input.
	AckForward
)

// String returns the name of the strategy.
func (s AckStrategy) String() string {
	switch s {
	case AckOnSuccess:
		return "AckOnSuccess"
	case AckManual:
		return "AckManual"
	case AckForward:
		return "AckForward"
	default:
		return fmt.Sprintf("AckStrategy(%d)", int(s))
	}
}

// PipeConfig configures the processing of messages. The zero value is usable.
type PipeConfig struct {
	// AckStrategy determines who acknowledges a message, and when. Defaults to AckOnSuccess.
	AckStrategy AckStrategy
	// Concurrency is the number of workers. Defaults to 1. More workers do not keep the order of messages.
	Concurrency int
	// BufferSize is the number of messages that an output channel holds. Defaults to 0.
	BufferSize int
	// ShutdownTimeout is how long messages in flight may continue after the context has ended, before their own contexts are
	// cancelled. Defaults to 10 s. A negative value cancels them at once.
	ShutdownTimeout time.Duration
	// Logger logs errors if there is no ErrorHandler. Defaults to slog.Default().
	Logger *slog.Logger
	// ErrorHandler is called for every message that failed in a Pipe or an Engine, and for every output that was not delivered.
	// Several goroutines may call it at the same time. It must not settle the message. Defaults to logging.
	ErrorHandler func(ctx context.Context, msg *Message, err error)
}

func (c PipeConfig) withDefaults() PipeConfig {
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c PipeConfig) validate() error {
	switch {
	case c.AckStrategy < AckOnSuccess || c.AckStrategy > AckForward:
		return fmt.Errorf("message: PipeConfig.AckStrategy is %d; use AckOnSuccess, AckManual or AckForward", c.AckStrategy)
	case c.Concurrency < 0:
		return fmt.Errorf("message: PipeConfig.Concurrency is %d; use a number of workers, or 0 for 1", c.Concurrency)
	case c.BufferSize < 0:
		return fmt.Errorf("message: PipeConfig.BufferSize is %d; use 0 or more messages", c.BufferSize)
	default:
		return nil
	}
}

// Router passes each message through its middlewares to the first handler that takes it:
//
//	acking → first middleware → … → last middleware → handler
//
// Acking is outermost, so a middleware commits before the message is acked.
type Router struct {
	cfg PipeConfig
	// decode is set by an Engine. It decodes data into the input of the chosen handler.
	decode func(h Handler, msg *Message) error
	// marshaler is set by an Engine, for middlewares that store outputs.
	marshaler Marshaler

	mu         sync.Mutex
	err        error // the error of the config or of a middleware
	started    bool
	middleware []Middleware
	entries    []*entry
}

// entry is a handler with its routes and its chain of middlewares.
type entry struct {
	route     *route
	end       *route // for a message whose caller accepts no outputs
	matcher   Matcher
	eventType string
	handler   Handler
	chain     ProcessFunc
}

// NewRouter returns a Router. If cfg is invalid, every method that returns an error returns that error.
func NewRouter(cfg PipeConfig) *Router {
	return &Router{cfg: cfg.withDefaults(), err: cfg.validate()}
}

// Use adds middlewares, the first outermost. It returns ErrStarted after the first message.
func (r *Router) Use(mw ...Middleware) error {
	return r.configure(func() error {
		for i, m := range mw {
			if m.wrap == nil {
				return fmt.Errorf("message: middleware %d has no function; make it with NewMiddleware", i)
			}
		}
		r.middleware = append(r.middleware, mw...)
		return nil
	})
}

// AddHandler adds a handler under a unique name. It takes the messages that match and have its event type. If several handlers
// take a message, the one that was added first handles it. AddHandler returns ErrStarted after the first message.
func (r *Router) AddHandler(name string, matcher Matcher, h Handler) error {
	return r.configure(func() error {
		if name == "" {
			return errors.New("message: a handler needs a name")
		}
		if h == nil {
			return fmt.Errorf("message: handler %q is nil", name)
		}
		if slices.ContainsFunc(r.entries, func(e *entry) bool { return e.route.handler == name }) {
			return fmt.Errorf("message: there is a handler %q already; use another name", name)
		}
		r.entries = append(r.entries, &entry{
			route:     &route{handler: name, strategy: r.cfg.AckStrategy, marshaler: r.marshaler},
			end:       &route{handler: name, strategy: r.cfg.AckStrategy, marshaler: r.marshaler, end: true},
			matcher:   matcher,
			eventType: h.EventType(),
			handler:   h,
		})
		return nil
	})
}

func (r *Router) configure(f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	if r.started {
		return ErrStarted
	}
	return f()
}

// start checks the middlewares and builds the chains, once.
func (r *Router) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	if r.started {
		return nil
	}
	r.started = true
	if r.err = r.checkWiring(); r.err != nil {
		return r.err
	}
	for _, e := range r.entries {
		e.chain = e.handle
		for i, mw := range slices.Backward(r.middleware) {
			if e.chain = mw.Wrap(e.chain); e.chain == nil {
				r.err = fmt.Errorf("message: middleware %d returned a nil ProcessFunc", i)
				return r.err
			}
		}
	}
	return nil
}

// Process handles one message and settles it by the ack strategy as a Pipe does, for tests and adapters. It returns the outputs,
// or the error with which the message was nacked. A panic becomes a *PanicError.
func (r *Router) Process(ctx context.Context, msg *Message) ([]*Message, error) {
	return r.process(ctx, msg, false)
}

// process is Process. If end is true, the caller accepts no outputs.
func (r *Router) process(ctx context.Context, msg *Message, end bool) ([]*Message, error) {
	err := r.start()
	if msg == nil {
		return nil, errors.Join(err, errNilMessage)
	}
	if err != nil {
		return nil, errors.Join(err, r.settle(msg, err))
	}
	outs, err := r.handle(ctx, msg, end)
	if err == nil && r.cfg.AckStrategy == AckForward {
		return outs, guard(func() error { forward(msg, outs); return nil })
	}
	return outs, errors.Join(err, r.settle(msg, err))
}

var (
	errNilMessage = errors.New("message: the message is nil")
	errNilOutput  = errors.New("message: the handler returned a nil message")
	errGoexit     = errors.New("message: the handler ended its goroutine by runtime.Goexit; return an error instead")
)

// handle chooses a handler and runs its chain. It settles the message only if the goroutine ends meanwhile.
func (r *Router) handle(ctx context.Context, msg *Message, end bool) (outs []*Message, err error) {
	returned := false
	defer func() {
		if !returned {
			r.report(ctx, msg, errors.Join(errGoexit, r.settle(msg, errGoexit)))
		}
	}()
	err = guard(func() error {
		e, err := r.choose(msg)
		if err != nil {
			return err
		}
		way := e.route
		if end {
			way = e.end
		}
		ctx, cancel := msg.routeContext(ctx, way)
		defer cancel()
		if outs, err = e.chain(ctx, msg); err != nil {
			return err
		}
		return CheckOutputs(ctx, msg, outs, false)
	})
	returned = true
	if err != nil {
		return nil, err
	}
	return outs, noNil(outs)
}

// choose finds the handler for a message and decodes the data for it.
func (r *Router) choose(msg *Message) (*entry, error) {
	for _, e := range r.entries {
		if (e.eventType != "" && e.eventType != msg.Type()) || !e.matcher.matches(msg.Attributes) {
			continue
		}
		if r.decode != nil {
			if err := r.decode(e.handler, msg); err != nil {
				return nil, err
			}
		}
		return e, nil
	}
	return nil, fmt.Errorf("%w: id %q, type %q, source %q", ErrNoHandler, msg.ID(), msg.Type(), msg.Source())
}

// handle is the innermost step of the chain. If a middleware has passed on another message, handle creates a context for that
// one.
func (e *entry) handle(ctx context.Context, msg *Message) ([]*Message, error) {
	if m, ok := MessageFromContext(ctx); !ok || m != msg {
		way, ok := ctx.Value(routeKey).(*route)
		if !ok { // a middleware has not passed its context on
			way = e.route
		}
		var cancel context.CancelFunc
		ctx, cancel = msg.routeContext(ctx, way)
		defer cancel()
	}
	if expiry, ok := msg.ExpiryTime(); ok && !time.Now().Before(expiry) {
		return nil, Permanent(fmt.Errorf("%w: id %q, expirytime %s", ErrExpired, msg.ID(), expiry.Format(time.RFC3339)))
	}
	outs, err := e.handler.Handle(ctx, msg)
	if err != nil {
		return outs, err
	}
	return outs, noNil(outs)
}

func noNil(outs []*Message) error {
	if slices.Contains(outs, nil) {
		return errNilOutput
	}
	return nil
}

// settle nacks the message if err is not nil, and acks it under AckOnSuccess otherwise.
func (r *Router) settle(msg *Message, err error) error {
	return guard(func() error {
		if err != nil {
			msg.Nack(err)
		} else if r.cfg.AckStrategy == AckOnSuccess {
			msg.Ack()
		}
		return nil
	})
}

// forward makes the outputs settle the input. It reads the input's acking first, because the input may be one of the outputs.
func forward(in *Message, outs []*Message) {
	acking := in.acking
	g := &group{
		waiting: 1, // released when all outputs have joined
		cfg: groupConfig{
			ack:     func() { acking.settle(acked, nil) },
			nack:    func(err error) { acking.settle(nacked, err) },
			release: func() { acking.settle(released, nil) },
			forward: acking.forwards(),
		},
	}
	for _, out := range outs {
		if out.acking != nil && out.acking.group == g {
			continue
		}
		g.waiting++
		out.acking = g.newShare()
		if out.values.Load() == nil {
			out.values.Store(in.values.Load())
		}
	}
	g.settle(acked, nil)
}

// guard converts a panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}
