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

// ReceiverConfig configures a Receiver. Its zero value works.
type ReceiverConfig struct {
	// Timeout bounds how long an event may wait for its settlement, a free worker included. Then the sender is told to try
	// again. Defaults to 30 seconds.
	Timeout time.Duration
	// Result is what the sender is told of an event that was nacked. Defaults to Result.
	Result func(error) protocol.Result
}

// ErrTimeout says that an event was not settled within ReceiverConfig.Timeout.
var ErrTimeout = errors.New("cloudevents: the event was not settled in time")

// Receiver gives the events that a client of the SDK receives to a router. The sender is answered when the message is
// settled: with ACK after the commit, by HTTP 200; see Result for the others.
type Receiver struct {
	client client.Client
	cfg    ReceiverConfig
	out    chan *message.RawMessage
}

// NewReceiver makes a Receiver of a client, which receives while Run does.
func NewReceiver(c client.Client, cfg ReceiverConfig) (*Receiver, error) {
	if c == nil {
		return nil, errors.New("cloudevents: NewReceiver needs a client")
	}
	if cfg.Timeout < 0 {
		return nil, errors.New("cloudevents: ReceiverConfig.Timeout: use 0 for the default, or more")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	if cfg.Result == nil {
		cfg.Result = Result
	}
	return &Receiver{client: c, cfg: cfg, out: make(chan *message.RawMessage)}, nil
}

// Messages is where events are given out, for Engine.AddRawInput. It is closed when Run has ended.
func (r *Receiver) Messages() <-chan *message.RawMessage { return r.out }

// Run receives until ctx ends, and until what was given out is settled: let the Engine run meanwhile. It runs once. The
// error is that of the client, nil where ctx has ended.
func (r *Receiver) Run(ctx context.Context) error {
	defer close(r.out)
	err := r.client.StartReceiver(ctx, func(_ context.Context, e event.Event) protocol.Result { return r.receive(ctx, e) })
	if err != nil {
		return fmt.Errorf("cloudevents: receive: %w", err)
	}
	return nil
}

// receive gives an event out, and waits for what becomes of it.
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

// Result is what the sender is told of the reason of a nack; nil is ACK. For HTTP it is 422 where the error is permanent,
// 503 where the service stops, has no time, or the error asks for a delay, and 500 for any other; for other protocols NACK.
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

// nack says no more than the status: the reason is for the log of the service.
func nack(status int) protocol.Result {
	return cehttp.NewResult(status, "%w", protocol.ResultNACK)
}
