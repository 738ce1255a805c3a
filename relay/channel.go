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
	// Wait bounds the time in which an event must be received and settled. Defaults to the rest of its lease.
	Wait time.Duration
}

var (
	errNotReceived = errors.New("relay: nobody received the event from the channel in time")
	errNotSettled  = errors.New("relay: the event was received and not settled in time")
	errReleased    = errors.New("relay: the event was released by who received it")
)

// Channel returns a Publisher that sends events to a Go channel, in the order of the batch. The receiver must settle each
// message. Ack means that the event is published. Nack passes on the error of a Publisher: a plain error is a failed
// attempt, and Unavailable, Later and message.Permanent have their usual meaning. Release gives the event back.
//
// If an event is not received or not settled in time, its destination counts as unavailable. A later Ack or Nack returns
// false, and the relay publishes the event again. Channel never closes the channel.
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
			for rest := i; rest < len(errs); rest++ { // a full channel is full for the rest of the batch
				errs[rest] = Unavailable(errNotReceived)
			}
			break
		}
		return errs
	})
}

// offer is an event that was sent to a channel.
type offer struct {
	msg    *message.RawMessage
	answer chan error // receives one result
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

// wait returns the result of the receiver, or of its own Release when ctx ends first.
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
