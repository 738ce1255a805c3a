package cloudevents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cloudevents/sdk-go/v2/client"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/protocol"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/luatx/luatx/message"
)

// ReceiverConfig configures a Receiver. The zero value is usable.
type ReceiverConfig struct {
	// Timeout bounds the wait for the settlement of an event, including the wait for a free worker. After that, the sender
	// gets a result that requests a retry. Defaults to 30 seconds.
	Timeout time.Duration
	// Result returns the result that the sender gets for a nacked event. Defaults to the function Result.
	Result func(error) protocol.Result
}

// ErrTimeout is the error of an event that was not settled within ReceiverConfig.Timeout.
var ErrTimeout = errors.New("cloudevents: the event was not settled in time")

// Receiver passes the events that a client of the SDK receives to a router. The sender gets a response when the message is
// settled: an ACK after the commit (HTTP 200), or else the result of ReceiverConfig.Result.
type Receiver struct {
	client client.Client
	cfg    ReceiverConfig
	out    chan *message.RawMessage
}

// NewReceiver returns a Receiver for a client. It receives events while Run is running.
func NewReceiver(c client.Client, cfg ReceiverConfig) (*Receiver, error) {
	if c == nil {
		return nil, errors.New("cloudevents: NewReceiver needs a client")
	}
	if cfg.Timeout < 0 {
		return nil, errors.New("cloudevents: ReceiverConfig.Timeout is negative; use 0 for the default, or more")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	if cfg.Result == nil {
		cfg.Result = Result
	}
	return &Receiver{client: c, cfg: cfg, out: make(chan *message.RawMessage)}, nil
}

// Messages returns the channel of received events, for Engine.AddRawInput. The channel is closed after Run has ended.
func (r *Receiver) Messages() <-chan *message.RawMessage { return r.out }

// Run receives events until ctx ends and all events that were handed out are settled, so the Engine must keep running. Run can be
// called once. It returns the error of the client, or nil if ctx has ended.
func (r *Receiver) Run(ctx context.Context) error {
	defer close(r.out)
	err := r.client.StartReceiver(ctx, func(_ context.Context, e event.Event) protocol.Result { return r.receive(ctx, e) })
	if err != nil {
		return fmt.Errorf("cloudevents: receive: %w", err)
	}
	return nil
}

// receive hands an event out and waits for its settlement.
func (r *Receiver) receive(ctx context.Context, e event.Event) protocol.Result {
	msg, err := FromEvent(e)
	if err != nil {
		return r.cfg.Result(message.Permanent(err))
	}
	settled := make(chan error, 1)
	released := false
	var reason error
	msg.SetAcking(message.NewAckingFrom(message.AckingConfig{
		Nack:    func(err error) { reason = err },
		Release: func() { released = true },
		Settled: func() {
			if released {
				reason = message.ErrStopped
			}
			settled <- reason
		},
	}))
	timer := time.NewTimer(r.cfg.Timeout)
	defer timer.Stop()
	select {
	case r.out <- msg:
	case <-ctx.Done():
		return r.cfg.Result(message.ErrStopped)
	case <-timer.C:
		return r.cfg.Result(ErrTimeout)
	}
	select {
	case err := <-settled:
		return r.cfg.Result(err)
	case <-timer.C:
		return r.cfg.Result(ErrTimeout)
	}
}

// Result returns the result that the sender gets for the reason of a nack, and ACK for nil. For HTTP, the status is 422 if the
// error is permanent, 503 if the service stops, has no time, or the error requests a delay, and 500 for other errors. For other
// protocols, it is NACK.
func Result(err error) protocol.Result {
	_, later := message.RetryDelay(err)
	switch {
	case err == nil:
		return protocol.ResultACK
	case message.IsPermanent(err):
		return nack(http.StatusUnprocessableEntity)
	case later, errors.Is(err, message.ErrStopped), errors.Is(err, ErrTimeout):
		return nack(http.StatusServiceUnavailable)
	}
	return nack(http.StatusInternalServerError)
}

// nack returns a result with the status only, because the reason is meant for the log of the service.
func nack(status int) protocol.Result {
	return cehttp.NewResult(status, "%w", protocol.ResultNACK)
}
