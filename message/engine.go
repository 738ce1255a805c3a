package message

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// EngineConfig configures an Engine. The zero value is usable.
type EngineConfig struct {
	// Pipe configures the Engine's Router. Its BufferSize applies to each raw output.
	Pipe PipeConfig
	// Marshaler decodes inputs and encodes outputs. Defaults to JSONMarshaler.
	Marshaler Marshaler
}

// Engine is a Router between encoded messages. It decodes each input for its handler and encodes the outputs.
type Engine struct {
	cfg    EngineConfig
	router *Router

	mu      sync.Mutex
	err     error // the error of the config
	started bool
	inputs  []rawInput
	outputs []rawOutput
}

type rawInput struct {
	name    string
	matcher Matcher
	ch      <-chan *RawMessage
	// subscriber opens the channel when the Engine runs. It is nil if the channel was given.
	subscriber Subscriber
}

type rawOutput struct {
	name    string
	matcher Matcher
	ch      chan *RawMessage
}

// NewEngine returns an Engine. If cfg is invalid, every method that returns an error returns that error.
func NewEngine(cfg EngineConfig) *Engine {
	if cfg.Marshaler == nil {
		cfg.Marshaler = JSONMarshaler{}
	}
	e := &Engine{cfg: cfg, router: NewRouter(cfg.Pipe), err: cfg.Pipe.validate()}
	e.router.decode = e.decode
	e.router.marshaler = cfg.Marshaler
	return e
}

// Router returns the Engine's Router, to which middlewares are added.
func (e *Engine) Router() *Router { return e.router }

// AddHandler adds a handler to the Engine's Router.
func (e *Engine) AddHandler(name string, matcher Matcher, h Handler) error {
	return e.router.AddHandler(name, matcher, h)
}

// AddRawInput adds a channel of encoded messages. The Engine nacks messages that do not match with ErrNoInput and reports them.
// AddRawInput returns ErrStarted if the Engine runs.
func (e *Engine) AddRawInput(name string, matcher Matcher, ch <-chan *RawMessage) error {
	if ch == nil {
		return fmt.Errorf("message: the channel of raw input %q is nil", name)
	}
	return e.addInput(rawInput{name: name, matcher: matcher, ch: ch})
}

func (e *Engine) addInput(input rawInput) error {
	return e.configure(func() error {
		if input.name == "" {
			return errors.New("message: a raw input needs a name")
		}
		if slices.ContainsFunc(e.inputs, func(in rawInput) bool { return in.name == input.name }) {
			return fmt.Errorf("message: there is a raw input %q already; use another name", input.name)
		}
		e.inputs = append(e.inputs, input)
		return nil
	})
}

// AddRawOutput returns a channel of the encoded outputs that match. If several raw outputs match an output, the one that was
// added first takes it. Read the channel until it is closed. AddRawOutput returns ErrStarted if the Engine runs.
//
// An encoded output without an id gets a random one. It has the content type of the Marshaler if that encoded it. The Engine
// reports an output that no raw output takes with ErrNoOutput and, under AckForward and AckManual, nacks it.
func (e *Engine) AddRawOutput(name string, matcher Matcher) (<-chan *RawMessage, error) {
	ch := make(chan *RawMessage, max(e.cfg.Pipe.BufferSize, 0))
	err := e.configure(func() error {
		if name == "" {
			return errors.New("message: a raw output needs a name")
		}
		if slices.ContainsFunc(e.outputs, func(out rawOutput) bool { return out.name == name }) {
			return fmt.Errorf("message: there is a raw output %q already; use another name", name)
		}
		e.outputs = append(e.outputs, rawOutput{name: name, matcher: matcher, ch: ch})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ch, nil
}

func (e *Engine) configure(f func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started {
		return ErrStarted
	}
	if e.err != nil {
		return e.err
	}
	return f()
}

// Run processes the raw inputs until all of them are closed or ctx ends, and then returns nil. It runs once. Before it reads, it
// returns a *WiringError if the Engine would lose messages, or the error of a subscriber that cannot subscribe. If the problem
// appears only with a message, Run stops and returns a *WiringError. It stops in this order:
//
//  1. It takes nothing more from the raw inputs. It nacks messages that were taken but have no worker yet with ErrStopped.
//  2. Messages in flight finish, and their outputs wait for readers, both within PipeConfig.ShutdownTimeout. Then it cancels the
//     contexts of handlers, and drops outputs without a reader as a Pipe does.
//  3. It closes the raw outputs and returns.
func (e *Engine) Run(ctx context.Context) error {
	err := e.configure(func() error {
		if len(e.inputs) == 0 {
			return errors.New("message: the Engine has no raw input; call AddRawInput or AddSubscriber")
		}
		e.started = true
		return nil
	})
	if err != nil {
		return err
	}
	defer func() {
		for _, out := range e.outputs {
			close(out.ch)
		}
	}()
	if err := e.Check(); err != nil {
		return err
	}
	detached := context.WithoutCancel(ctx)
	ctx, stop := context.WithCancelCause(ctx)
	defer func() {
		stop(nil)
		e.unsubscribe(detached)
	}()
	if err := e.subscribe(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // it stops before it has begun
		}
		return err
	}
	work, cancel := e.router.workContext(ctx)
	defer cancel()
	// The workers stop after the inputs, so that every input message reaches a worker or is nacked.
	e.router.pump(detached, work, e.merge(ctx), e.deliver, stop)
	if unsafe, ok := errors.AsType[*WiringError](context.Cause(ctx)); ok {
		return unsafe
	}
	return nil
}

// Process decodes and handles one encoded message and settles it by the ack strategy, like Router.Process. It returns the encoded
// outputs, or the error with which the message was nacked. Attributes that middlewares change also change in raw.
func (e *Engine) Process(ctx context.Context, raw *RawMessage) ([]*RawMessage, error) {
	if e.err != nil {
		return nil, e.err
	}
	if raw == nil {
		return nil, errNilMessage
	}
	outs, err := e.router.Process(ctx, opened(raw))
	if err != nil {
		return nil, err
	}
	encoded := make([]*RawMessage, len(outs))
	for i, out := range outs {
		if encoded[i], err = e.encode(out); err != nil {
			return nil, err
		}
	}
	return encoded, nil
}

// opened returns a message with data of any type that shares the attributes, acking and values of an encoded one.
func opened(raw *RawMessage) *Message {
	msg := New(raw.Data, raw.Attributes, nil)
	msg.acking = raw.acking
	msg.values.Store(raw.values.Load())
	return msg
}

// merge reads all raw inputs into one channel, and closes it after the inputs have ended.
func (e *Engine) merge(ctx context.Context) <-chan *Message {
	merged := make(chan *Message)
	var wg sync.WaitGroup
	for _, in := range e.inputs {
		wg.Go(func() { e.read(ctx, in, merged) })
	}
	go func() {
		wg.Wait()
		close(merged)
	}()
	return merged
}

func (e *Engine) read(ctx context.Context, in rawInput, merged chan<- *Message) {
	for {
		raw, ok := receive(ctx, in.ch)
		if !ok {
			return
		}
		if raw == nil {
			e.router.report(ctx, New(nil, nil, nil), fmt.Errorf("raw input %q: %w", in.name, errNilMessage))
			continue
		}
		msg := opened(raw)
		err := guard(func() error {
			if !in.matcher.matches(raw.Attributes) {
				return fmt.Errorf("%w: input %q, type %q, source %q", ErrNoInput, in.name, raw.Type(), raw.Source())
			}
			return send(ctx, merged, msg)
		})
		if err != nil {
			e.refuse(ctx, msg, err)
		}
	}
}

// refuse reports and nacks a message that did not reach the Router.
func (e *Engine) refuse(ctx context.Context, msg *Message, err error) {
	e.router.report(ctx, msg, err)
	if err := guard(func() error { msg.Nack(err); return nil }); err != nil {
		e.router.report(ctx, msg, err)
	}
}

// decode replaces encoded data by the value that the handler takes.
func (e *Engine) decode(h Handler, msg *Message) error {
	raw, ok := msg.Data.([]byte)
	if !ok {
		return nil
	}
	if len(raw) == 0 {
		msg.Data = nil
		return nil
	}
	input := h.NewInput()
	switch input.(type) { // these take the bytes
	case *any, *[]byte, *json.RawMessage:
		return nil
	}
	if err := e.cfg.Marshaler.Unmarshal(raw, input); err != nil {
		return Permanent(fmt.Errorf("%w: data into a %T: %w", ErrDecode, input, err))
	}
	msg.Data = input
	return nil
}

// deliver encodes an output and sends it to its raw output.
func (e *Engine) deliver(ctx context.Context, out *Message) error {
	for _, o := range e.outputs {
		if !o.matcher.matches(out.Attributes) {
			continue
		}
		raw, err := e.encode(out)
		if err != nil {
			return err
		}
		return send(ctx, o.ch, raw)
	}
	return fmt.Errorf("%w: type %q, source %q", ErrNoOutput, out.Type(), out.Source())
}

func (e *Engine) encode(out *Message) (*RawMessage, error) {
	data, marshaled, err := marshalData(e.cfg.Marshaler, out.Data)
	if err != nil {
		return nil, err
	}
	raw := Copy(out, data)
	if marshaled {
		raw.Attributes[AttrDataContentType] = e.cfg.Marshaler.ContentType()
	}
	if raw.ID() == "" {
		raw.Attributes[AttrID] = NewID()
	}
	return raw, nil
}
