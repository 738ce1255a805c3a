package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/relay/cehttp"
)

const (
	defaultAckTimeout  = 5 * time.Second
	defaultConcurrency = 256
)

// PublisherConfig configures a Publisher. The zero value is usable.
type PublisherConfig struct {
	// Subject returns the subject of an event, which a stream must have. Defaults to its destination.
	Subject func(*message.RawMessage) (string, error)
	// MessageID returns the id by which the stream detects duplicates, within its duplicate window (two minutes by default).
	// Defaults to the function MessageID: source and id.
	MessageID func(*message.RawMessage) string
	// Structured encodes the whole event as JSON in the payload. Defaults to binary mode, with attributes in headers.
	Structured bool
	// Concurrency is the maximum number of events of a batch that wait for their acks. Defaults to 256.
	Concurrency int
	// AckTimeout is how long to wait for one ack. After that, the stream counts as unavailable. Defaults to 5 s.
	AckTimeout time.Duration
	// Acked is called with every ack, possibly by several goroutines at once. The field Duplicate of the ack reports that the
	// stream already had the event. Defaults to none.
	Acked func(event *message.RawMessage, ack *jetstream.PubAck)
}

// Publisher publishes events to streams of JetStream. It implements relay.Publisher and relay.Scoped; its scopes are the
// subjects. An event counts as sent when its stream has stored it. The events of a batch are sent concurrently, those with the
// same partition key one after the other.
type Publisher struct {
	relay.Publisher
	js  jetstream.JetStream
	cfg PublisherConfig
}

var _ relay.Scoped = (*Publisher)(nil)

// NewPublisher returns a Publisher. It does no I/O, and never closes the connection, which should reconnect without a limit
// (nats.MaxReconnects(-1)).
func NewPublisher(js jetstream.JetStream, cfg PublisherConfig) (*Publisher, error) {
	switch {
	case js == nil:
		return nil, errors.New("nats: NewPublisher: js is nil; create one with jetstream.New")
	case cfg.Concurrency < 0:
		return nil, fmt.Errorf("nats: PublisherConfig.Concurrency is %d; use a number of events, or 0 for %d", cfg.Concurrency, defaultConcurrency)
	case cfg.AckTimeout < 0:
		return nil, fmt.Errorf("nats: PublisherConfig.AckTimeout is %v; use 0 for %v", cfg.AckTimeout, defaultAckTimeout)
	}
	if cfg.Subject == nil {
		cfg.Subject = destination
	}
	if cfg.MessageID == nil {
		cfg.MessageID = MessageID
	}
	cfg.Concurrency = cmp.Or(cfg.Concurrency, defaultConcurrency)
	cfg.AckTimeout = cmp.Or(cfg.AckTimeout, defaultAckTimeout)
	p := &Publisher{js: js, cfg: cfg}
	p.Publisher = relay.Func(p.publish, relay.FuncConfig{Concurrency: cfg.Concurrency})
	return p, nil
}

// Scope implements relay.Scoped. It returns the subject.
func (p *Publisher) Scope(event *message.RawMessage) string {
	subject, err := p.cfg.Subject(event)
	if err != nil {
		return ""
	}
	return subject
}

var errNoSubject = errors.New("nats: the event has no destination; set one, or PublisherConfig.Subject")

func destination(event *message.RawMessage) (string, error) {
	if subject := event.Destination(); subject != "" {
		return subject, nil
	}
	return "", relay.Classify("unrouted", errNoSubject)
}

func (p *Publisher) publish(ctx context.Context, event *message.RawMessage) error {
	subject, err := p.cfg.Subject(event)
	if err != nil {
		return err
	}
	mode := cehttp.Binary
	if p.cfg.Structured {
		mode = cehttp.Structured
	}
	header, data, err := encode(event, mode)
	if err != nil {
		return message.Permanent(relay.Classify("malformed", err))
	}
	if id := p.cfg.MessageID(event); id != "" {
		header[jetstream.MsgIDHeader] = []string{id}
	}
	if status := p.js.Conn().Status(); status != nats.CONNECTED { // otherwise it would wait in the client's buffer
		return relay.Unavailable(relay.Classify("network", fmt.Errorf("nats: publish to %q: the connection is %s", subject, status)))
	}
	bounded, cancel := context.WithTimeout(ctx, p.cfg.AckTimeout)
	defer cancel()
	ack, err := p.js.PublishMsg(bounded, &nats.Msg{Subject: subject, Header: header, Data: data})
	if err != nil {
		return judge(ctx, fmt.Errorf("nats: publish to %q: %w", subject, err))
	}
	if p.cfg.Acked != nil {
		p.cfg.Acked(event, ack)
	}
	return nil
}

// judge converts an error of a publish into a result for the relay.
func judge(ctx context.Context, err error) error {
	api, answered := errors.AsType[*jetstream.APIError](err)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return relay.Later(err, 0) // the relay stops
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
		return message.Permanent(relay.Classify("too_large", err))
	case errors.Is(err, nats.ErrBadSubject), errors.Is(err, jetstream.ErrInvalidSubject):
		return relay.Classify("unrouted", err)
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return relay.Unavailable(relay.Classify("no_stream", err))
	case answered && api.Code == 503: // full, without a leader, without resources, or JetStream is disabled
		return relay.Unavailable(relay.Classify(fmt.Sprintf("jetstream_%d", api.ErrorCode), err))
	case answered:
		return relay.Classify(fmt.Sprintf("jetstream_%d", api.ErrorCode), err)
	case errors.Is(err, jetstream.ErrInvalidJSAck):
		return relay.Classify("no_jetstream", err) // another service replies on that subject
	case errors.Is(err, nats.ErrHeadersNotSupported):
		return relay.Classify("no_headers", err)
	}
	return relay.Unavailable(relay.Classify("network", err)) // timeouts and other connection errors
}
