package amqp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

const (
	// window is the maximum number of unconfirmed events on a channel.
	window = 256
	// grace is how long the broker may take for something that should be immediate.
	grace = time.Second
)

// link is a connection of a Publisher with its idle channels.
type link struct {
	conn *amqp091.Connection

	ending *sync.WaitGroup // goroutines that end soon, or with the connection

	mu      sync.Mutex
	idle    []*channel
	blocked chan struct{} // closed while the broker blocks publishers
}

// channel is a channel in confirm mode. Only one batch uses it at a time.
type channel struct {
	*amqp091.Channel
	link    *link
	closed  chan *amqp091.Error
	returns chan amqp091.Return // has room for every possible return
}

func newLink(conn *amqp091.Connection, ending *sync.WaitGroup) *link {
	l := &link{conn: conn, ending: ending, blocked: make(chan struct{})}
	blockings := conn.NotifyBlocked(make(chan amqp091.Blocking, 1))
	l.ending.Go(func() {
		for b := range blockings { // closed with the connection
			l.block(b.Active)
		}
	})
	return l
}

func (l *link) block(active bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := isDone(l.blocked)
	switch {
	case active && !was:
		close(l.blocked)
	case !active && was:
		l.blocked = make(chan struct{})
	}
}

// blocking returns a channel that is closed while the broker blocks publishers, or when it begins to.
func (l *link) blocking() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blocked
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// idleChannel returns an idle channel. It opens one if there is none.
func (l *link) idleChannel(ctx context.Context) (*channel, error) {
	l.mu.Lock()
	for n, ch := range slices.Backward(l.idle) {
		l.idle = l.idle[:n]
		if !ch.IsClosed() {
			l.mu.Unlock()
			return ch, nil
		}
	}
	l.mu.Unlock()
	return within(ctx, l.ending, l.open, (*channel).discard)
}

func (l *link) open() (*channel, error) {
	raw, err := l.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("amqp: open a channel: %w", err)
	}
	if err := raw.Confirm(false); err != nil {
		return nil, errors.Join(fmt.Errorf("amqp: enable confirms: %w", err), raw.Close())
	}
	return &channel{
		Channel: raw,
		link:    l,
		closed:  raw.NotifyClose(make(chan *amqp091.Error, 1)),
		returns: raw.NotifyReturn(make(chan amqp091.Return, window)),
	}, nil
}

// giveBack makes a channel without unconfirmed events available to other batches.
func (ch *channel) giveBack() {
	ch.link.mu.Lock()
	defer ch.link.mu.Unlock()
	ch.link.idle = append(ch.link.idle, ch)
}

// discard closes a channel without waiting for an unresponsive broker.
func (ch *channel) discard() {
	ch.link.ending.Go(func() { _ = ch.Close() })
}

// cut closes the connection at once, so that every wait for it ends.
func (l *link) cut() { hangUp(l.conn, 0) }

// within calls a function that ignores contexts. A result that arrives after ctx has ended is dropped.
func within[T any](ctx context.Context, group *sync.WaitGroup, produce func() (T, error), drop func(T)) (T, error) {
	type made struct {
		value T
		err   error
	}
	result := make(chan made)
	group.Go(func() {
		value, err := produce()
		select {
		case result <- made{value, err}:
		case <-ctx.Done():
			if err == nil {
				drop(value)
			}
		}
	})
	select {
	case m := <-result:
		return m.value, m.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
