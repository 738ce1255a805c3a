package cloudevents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/client"
	cecontext "github.com/cloudevents/sdk-go/v2/context"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/protocol"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// PublisherConfig configures a Publisher. The zero value is usable.
type PublisherConfig struct {
	// Target returns the target of an event, for protocols that take it from the context, such as a URL for HTTP. An outage then
	// concerns one target. Defaults to the target of the protocol.
	Target func(*message.RawMessage) (string, error)
	// Binary sends attributes as headers if the protocol supports that. The SDK does not escape them for HTTP, so an attribute
	// with a percent sign arrives changed. Defaults to structured mode, with the whole event as JSON.
	Binary bool
	// Concurrency is the maximum number of events of a batch that are sent at the same time. Events with the same partition key
	// are sent one after the other. Defaults to 8.
	Concurrency int
	// Timeout bounds sending one event, including the response. Defaults to 10 seconds.
	Timeout time.Duration
	// Answer converts a result of the SDK into a result of relay.Publisher. Defaults to the function Answer.
	Answer func(protocol.Result) error
}

// Publisher publishes events with a client of the SDK, and so with any of its protocols. It implements relay.Publisher; Answer
// explains the results. An event that the SDK considers invalid is parked with the class malformed.
type Publisher struct {
	relay.Publisher
	client client.Client
	cfg    PublisherConfig
}

// NewPublisher returns a Publisher for a client, which it never closes.
func NewPublisher(c client.Client, cfg PublisherConfig) (*Publisher, error) {
	if c == nil {
		return nil, errors.New("cloudevents: NewPublisher needs a client")
	}
	if cfg.Timeout < 0 || cfg.Concurrency < 0 {
		return nil, errors.New("cloudevents: PublisherConfig.Timeout or Concurrency is negative; use 0 for the default, or more")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	if cfg.Answer == nil {
		cfg.Answer = Answer
	}
	p := &Publisher{client: c, cfg: cfg}
	p.Publisher = relay.Func(p.send, relay.FuncConfig{Concurrency: cfg.Concurrency})
	return p, nil
}

// Scope implements relay.Scoped. It returns the target if each event has its own.
func (p *Publisher) Scope(msg *message.RawMessage) string {
	if p.cfg.Target == nil {
		return ""
	}
	target, err := p.cfg.Target(msg)
	if err != nil {
		return "no target"
	}
	return target
}

func (p *Publisher) send(ctx context.Context, msg *message.RawMessage) error {
	e, err := ToEvent(msg)
	if err != nil {
		return message.Permanent(relay.Classify("malformed", err))
	}
	bounded, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	if p.cfg.Target != nil {
		target, err := p.cfg.Target(msg)
		if err != nil {
			return relay.Classify("unrouted", fmt.Errorf("cloudevents: no target for event %q: %w", msg.ID(), err))
		}
		bounded = cecontext.WithTarget(bounded, target)
	}
	if p.cfg.Binary {
		bounded = binding.WithForceBinary(bounded)
	} else {
		bounded = binding.WithForceStructured(bounded)
	}
	result := p.client.Send(bounded, e)
	if ctx.Err() != nil && !protocol.IsACK(result) { // the relay stops, or its time has run out
		return relay.Later(fmt.Errorf("cloudevents: %w", result), 0)
	}
	return p.cfg.Answer(result)
}

// Answer converts a result of the SDK into a result for a relay:
//
//   - ACK: sent.
//   - An HTTP status: as in relay.HTTP. 408, 425, 429 and 503 are unavailable; 401, 403, 404, 407, redirects and the other 5xx are
//     refused; the other 4xx are parked. The class is http_ and the status.
//   - No connection: unavailable, class network. No response in time: refused, class no_answer.
//   - Another NACK: refused, class nack.
//   - An event that is invalid by its Validate: parked, class malformed.
//   - Any other result, which the SDK calls undelivered: unavailable, class undelivered.
func Answer(result protocol.Result) error {
	if protocol.IsACK(result) {
		return nil
	}
	err := fmt.Errorf("cloudevents: %w", result)
	var status *cehttp.Result
	var invalid event.ValidationError
	var network net.Error
	switch {
	case protocol.ResultAs(result, &status):
		return ofStatus(status.StatusCode, err)
	case errors.As(result, &invalid):
		return message.Permanent(relay.Classify("malformed", err))
	case errors.As(result, &network):
		return ofNetwork(network, err)
	case protocol.IsNACK(result):
		return relay.Classify("nack", err)
	}
	return relay.Unavailable(relay.Classify("undelivered", err))
}

func ofStatus(status int, err error) error {
	err = relay.Classify("http_"+strconv.Itoa(status), err)
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusRequestTimeout, http.StatusTooEarly:
		return relay.Unavailable(err)
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusProxyAuthRequired:
		return err
	}
	if status/100 == 4 {
		return message.Permanent(err)
	}
	return err
}

// ofNetwork returns the result for a network error. A timeout counts as an attempt, so that an event that makes its receiver hang
// is not retried forever.
func ofNetwork(network net.Error, err error) error {
	var dial *net.OpError
	if errors.As(network, &dial) && dial.Op == "dial" || !network.Timeout() {
		return relay.Unavailable(relay.Classify("network", plain(err)))
	}
	return relay.Classify("no_answer", plain(err))
}

// plain removes the URL from an error, because it may contain secrets.
func plain(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("cloudevents: %s: %w", wrapped.Op, wrapped.Err)
	}
	return err
}
