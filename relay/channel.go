package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/luatx/luatx/message"
)

// ChannelConfig configures Channel. Its zero value works.
type ChannelConfig struct {
	// Wait bounds how long an event may take to be received and settled. Defaults to what is left of its lease.
	Wait time.Duration
}

var (
	errNotReceived = errors.New("relay: nobody received the event from the channel in time")
	errNotSettled  = errors.New("relay: the event was received and not settled in time")
	errReleased    = errors.New("relay: the event was released by who received it")
)

// Channel publishes to a Go channel, in the order of the batch. Each message has an acking, and its receiver must settle
// it. Ack means sent. Nack returns an error as a Publisher does: a plain error is a rejection, and Unavailable, Later and
// message.Permanent have the same meaning as there. Release gives the event back. An event that is not received or not
// settled in time is unavailable: a later Ack or Nack returns false, and the event is published again. The channel is
// never closed.
func Channel(to chan<- *message.RawMessage, cfg ChannelConfig) Publisher {
	return PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		errs := make([]error, len(events))
		var settling sync.WaitGroup
		defer settling.Wait()
		for i, event := range events {
			ctx, cancel := ctx, context.CancelFunc(func() {})
			if cfg.Wait > 0 {
				ctx, cancel = context.WithTimeout(ctx, cfg.Wait)
			}
			offer := newOffer(event)
			select {
			case to <- offer.msg:
				settling.Go(func() {
					defer cancel()
					errs[i] = offer.wait(ctx)
				})
				continue
			case <-ctx.Done():
			}
			cancel()
			offer.msg.Release()
			for rest := i; rest < len(errs); rest++ { // a channel that is full is so for all of them
				errs[rest] = Unavailable(errNotReceived)
			}
			break
		}
		return errs
	})
}

// offer is an event in a channel.
type offer struct {
	msg    *message.RawMessage
	answer chan error // holds the answer, once
}

func newOffer(event *message.RawMessage) offer {
	o := offer{answer: make(chan error, 1)}
	o.msg = message.Copy(event, event.Data)
	o.msg.SetAcking(message.NewAckingFrom(message.AckingConfig{
		Ack:     func() { o.answer <- nil },
		Nack:    func(err error) { o.answer <- err },
		Release: func() { o.answer <- Later(errReleased, 0) },
	}))
	return o
}

// wait returns the result of the first settlement.
func (o offer) wait(ctx context.Context) error {
	select {
	case err := <-o.answer:
		return err
	case <-ctx.Done():
	}
	if o.msg.Release() {
		return Unavailable(errNotSettled)
	}
	return <-o.answer
}
