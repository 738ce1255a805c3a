package amqp

import (
	"context"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// publish sends letters until it fails. A write ignores contexts, so publish cuts the connection if the broker does not read.
func (ch *channel) publish(ctx context.Context, letters []*letter, mandatory bool) []*amqp091.DeferredConfirmation {
	written := make(chan struct{})
	defer close(written)
	defer context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-written:
		case <-timer.C:
			ch.link.cut()
		}
	})()
	blocked := ch.link.blocking()
	sent := make([]*amqp091.DeferredConfirmation, 0, len(letters))
	for _, l := range letters {
		if ctx.Err() != nil || isDone(blocked) {
			break
		}
		one, err := ch.PublishWithDeferredConfirm(l.exchange, l.key, mandatory, false, l.publishing)
		if err != nil { // the channel's end gives the reason
			break
		}
		sent = append(sent, one)
	}
	return sent
}

// await waits for the confirms until the context ends, or until shortly after the broker has begun to block publishers.
func (ch *channel) await(ctx context.Context, sent []*amqp091.DeferredConfirmation) {
	blocked := ch.link.blocking()
	var impatient <-chan time.Time
	for _, one := range sent {
		for !isDone(one.Done()) {
			select {
			case <-one.Done():
			case <-ctx.Done():
				return
			case <-impatient:
				return
			case <-blocked:
				timer := time.NewTimer(grace)
				defer timer.Stop()
				blocked, impatient = nil, timer.C
			}
		}
	}
}

// mail identifies a returned message. An id alone is not enough: a long one is no message id, and sources may use the same one.
type mail struct{ exchange, key, id string }

// returned returns the messages that the broker has returned. A return arrives before the confirm of its message.
func (ch *channel) returned() map[mail]amqp091.Return {
	back := map[mail]amqp091.Return{}
	for {
		select {
		case r, ok := <-ch.returns:
			if !ok {
				return back
			}
			back[mail{r.Exchange, r.RoutingKey, r.MessageId}] = r
		default:
			return back
		}
	}
}
