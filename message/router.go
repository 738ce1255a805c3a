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

// AckStrategy says who acknowledges a message, and when.
type AckStrategy int

const (
	// AckOnSuccess acks when handler and middlewares return no error and nacks when they do. A Pipe acks after its
	// outputs were taken over, and nacks where they were not because it stopped.
	AckOnSuccess AckStrategy = iota
	// AckManual leaves it to the handler, now or later. Only an error makes the Router nack what is not settled yet:
	// the handler may never have seen the message.
	AckManual
	// AckForward acks the input when all outputs have been acked, and at once where there are none; it nacks at the
	// first nack of an output and at an error. Outputs without in-process values get the input's.
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

// PipeConfig says how messages are processed. The zero value works.
type PipeConfig struct {
	// AckStrategy says who acknowledges a message, and when. Defaults to AckOnSuccess.
	AckStrategy AckStrategy
	// Concurrency is the number of workers. Defaults to 1; with more the order of messages is not kept.
	Concurrency int
	// BufferSize is the number of messages that an output channel holds. Defaults to 0.
	BufferSize int
	// ShutdownTimeout is how long messages in flight may go on after the context has ended, before their own contexts
	// are cancelled. Defaults to 10 s; a negative value cancels them at once.
	ShutdownTimeout time.Duration
	// Logger gets what went wrong where there is no ErrorHandler. Defaults to slog.Default().
	Logger *slog.Logger
	// ErrorHandler is told of every message that failed in a Pipe or an Engine and of every output that was not taken
	// over; several goroutines may call it at once. It must not settle the message. Defaults to logging.
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
		return fmt.Errorf("message: PipeConfig.AckStrategy is %d: use AckOnSuccess, AckManual or AckForward", c.AckStrategy)
	case c.Concurrency < 0:
		return fmt.Errorf("message: PipeConfig.Concurrency is %d: use a number of workers, or 0 for 1", c.Concurrency)
	case c.BufferSize < 0:
		return fmt.Errorf("message: PipeConfig.BufferSize is %d: use 0 or more messages", c.BufferSize)
	default:
		return nil
	}
}

// Router gives each message to the first of its handlers that takes it, through its middlewares:
//
//	acking → first middleware → … → last middleware → handler
//
// Acking is outermost, so what a middleware commits is committed before the message is acked.
type Router struct {
	cfg PipeConfig
	// decode is the Engine's: it makes encoded data the chosen handler's input.
	decode func(h Handler, msg *Message) error
	// marshaler is the Engine's, for middlewares that store outputs.
	marshaler Marshaler

	mu         sync.Mutex
	err        error // what is wrong with the config or a middleware
	started    bool
	middleware []Middleware
	entries    []*entry
}

// entry is a handler with what the router made of it.
type entry struct {
	route     *route
	end       *route // for a message whose outputs nobody takes
	matcher   Matcher
	eventType string
	handler   Handler
	chain     ProcessFunc
}

// NewRouter makes a Router. What is wrong with the config is returned by every method that has an error.
func NewRouter(cfg PipeConfig) *Router {
	return &Router{cfg: cfg.withDefaults(), err: cfg.validate()}
}

// Use adds middlewares; the first is outermost. It returns ErrStarted after the first message.
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

// AddHandler adds a handler under a name of its own. It takes the messages that match and have its event type; where
// several handlers would take a message, the first one added does. It returns ErrStarted after the first message.
func (r *Router) AddHandler(name string, matcher Matcher, h Handler) error {
	return r.configure(func() error {
		if name == "" {
			return errors.New("message: a handler needs a name")
		}
		if h == nil {
			return fmt.Errorf("message: handler %q is nil", name)
		}
		if slices.ContainsFunc(r.entries, func(e *entry) bool { return e.route.handler == name }) {
			return fmt.Errorf("message: there is a handler %q already: use another name", name)
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

// Process takes one message through handler and middlewares and acknowledges it by the strategy: what a Pipe does, for
// tests and adapters. It returns the outputs, or the error that the message was nacked with. A panic is a *PanicError.
func (r *Router) Process(ctx context.Context, msg *Message) ([]*Message, error) {
	return r.process(ctx, msg, false)
}

// process is Process; end says that nobody takes the outputs.
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
)

// handle chooses a handler and runs its chain; it does not settle.
func (r *Router) handle(ctx context.Context, msg *Message, end bool) (outs []*Message, err error) {
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
	if err != nil {
		return nil, err
	}
	return outs, noNil(outs)
}

// choose finds the handler, and decodes the data for it.
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

// handle is the innermost step of the chain. A middleware may have passed another message on, which the context must
// then speak of.
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

// settle nacks an error and acks under AckOnSuccess.
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

// forward makes the outputs settle the input. The input may be among them, so its own acking is taken first.
func forward(in *Message, outs []*Message) {
	acking := in.acking
	g := &group{
		waiting: 1, // let go when all have joined
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

// guard turns a panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}
