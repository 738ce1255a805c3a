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

// PublisherConfig configures a Publisher. Its zero value works.
type PublisherConfig struct {
	// Target names where an event goes to, for protocols that take a target from the context: a URL of HTTP, say. Outages are
	// of one target then. Defaults to the target of the protocol.
	Target func(*message.RawMessage) (string, error)
	// Binary sends attributes as headers, where the protocol has them. The SDK does not escape them for HTTP: an attribute
	// with a percent sign arrives as another one. Defaults to structured mode, all of an event as JSON.
	Binary bool
	// Concurrency is how many events of a batch are sent at a time; those of one partition key go one after the other.
	// Defaults to 8.
	Concurrency int
	// Timeout bounds sending one event, its answer included. Defaults to 10 seconds.
	Timeout time.Duration
	// Answer says what a result means for the event, as relay.Publisher has it. Defaults to Answer.
	Answer func(protocol.Result) error
}

// Publisher publishes events by a client of the SDK, and so by any of its protocols. It implements relay.Publisher; see
// Answer for what results mean. An event that the SDK takes for invalid is parked, class malformed.
type Publisher struct {
	relay.Publisher
	client client.Client
	cfg    PublisherConfig
}

// NewPublisher makes a Publisher of a client, which it never closes.
func NewPublisher(c client.Client, cfg PublisherConfig) (*Publisher, error) {
	if c == nil {
		return nil, errors.New("cloudevents: NewPublisher needs a client")
	}
	if cfg.Timeout < 0 || cfg.Concurrency < 0 {
		return nil, errors.New("cloudevents: PublisherConfig.Timeout and Concurrency: use 0 for the default, or more")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	if cfg.Answer == nil {
		cfg.Answer = Answer
	}
	p := &Publisher{client: c, cfg: cfg}
	p.Publisher = relay.Func(p.send, relay.FuncConfig{Concurrency: cfg.Concurrency})
	return p, nil
}

// Scope implements relay.Scoped: the target, where each event has its own.
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
	if ctx.Err() != nil && !protocol.IsACK(result) { // the relay stops, or has no more time
		return relay.Later(fmt.Errorf("cloudevents: %w", result), 0)
	}
	return p.cfg.Answer(result)
}

// Answer is what a result of the SDK means for a relay:
//
//   - ACK: sent.
//   - A status of HTTP: as relay.HTTP has it. 408, 425, 429 and 503 are unavailable, 401, 403, 404, 407, redirects and the other
//     5xx are refused, the other 4xx parked. The class is http_ and the status.
//   - No connection: unavailable, class network. No answer in time: refused, class no_answer.
//   - Another NACK: refused, class nack.
//   - An event that is invalid by its Validate: parked, class malformed.
//   - Anything else, undelivered in words of the SDK: unavailable, class undelivered.
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

// ofNetwork keeps an event that makes its receiver hang from being tried for ever.
func ofNetwork(network net.Error, err error) error {
	var dial *net.OpError
	if errors.As(network, &dial) && dial.Op == "dial" || !network.Timeout() {
		return relay.Unavailable(relay.Classify("network", plain(err)))
	}
	return relay.Classify("no_answer", plain(err))
}

// plain leaves the URL out, which may hold secrets.
func plain(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("cloudevents: %s: %w", wrapped.Op, wrapped.Err)
	}
	return err
}
