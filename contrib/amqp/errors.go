package amqp

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

var (
	// ErrUnroutable is the error of an event for which the broker found no queue.
	ErrUnroutable = errors.New("amqp: no queue is bound for the event")
	// ErrNacked is the error of an event that the broker did not accept, because a queue is full or has failed.
	ErrNacked = errors.New("amqp: the broker nacked the event")
	// ErrBlocked means that the broker accepts nothing from publishers, because it is short of memory or disk.
	ErrBlocked = errors.New("amqp: the broker blocks publishers")
	// ErrUnconfirmed is the error of an event that the broker did not confirm in time. The broker may have it.
	ErrUnconfirmed = errors.New("amqp: the broker has not confirmed the event in time")
)

var (
	errBehind = errors.New("amqp: an earlier event with the same partition key was not sent")
	errSame   = errors.New("amqp: another event to the same exchange was refused")
)

// laterDelay is the delay before an event is retried if only its queue does not accept it.
const laterDelay = time.Second

// unreachable returns the result for a failed connection.
func unreachable(err error) error {
	class := "network"
	if known, ok := errors.AsType[*amqp091.Error](err); ok && (known.Server || known.Code == amqp091.AccessRefused) {
		class = classOf(known)
	}
	return relay.Unavailable(relay.Classify(class, err))
}

func classOf(err *amqp091.Error) string { return "amqp_" + strconv.Itoa(err.Code) }

// isException reports whether the broker has closed a channel or a connection because of a published message.
func isException(err *amqp091.Error) bool {
	if err == nil || !err.Server {
		return false
	}
	switch err.Code {
	case amqp091.ConnectionForced, amqp091.InternalError, amqp091.ResourceError:
		return false
	}
	return true
}

// refusal returns the result for the event that made the broker close the channel.
func refusal(l *letter, err *amqp091.Error) error {
	out := relay.Classify(classOf(err), fmt.Errorf("amqp: event to exchange %q with routing key %q: %w", l.exchange, l.key, err))
	if err.Code == amqp091.PreconditionFailed || err.Code == amqp091.ContentTooLarge {
		return message.Permanent(out) // it is too large, or has a property that the broker rejects
	}
	return out
}

// isOfExchange reports whether the broker rejects all events to the exchange for the same reason.
func isOfExchange(err *amqp091.Error) bool {
	return err.Code == amqp091.NotFound || err.Code == amqp091.AccessRefused
}

func malformed(err error) error { return message.Permanent(relay.Classify("malformed", err)) }
