package amqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/message"
)

// PublisherConfig configures a Publisher. One of URL and Dial is required.
type PublisherConfig struct {
	// URL is the URL of the broker: amqp://user:password@host:5672/vhost, or amqps.
	URL string
	// Dial connects instead of URL.
	Dial DialFunc
	// Exchange is the exchange for events, with their destination as the routing key. Defaults to the default exchange, for which
	// the destination is the name of a queue.
	Exchange string
	// Address returns the exchange and the routing key of an event. If it returns an error, the event is refused. Defaults to
	// Exchange and the event's destination, which then must not be empty.
	Address func(*message.RawMessage) (exchange, key string, err error)
	// Structured encodes the whole event as JSON in the body. By default, the data is the body and the attributes are headers.
	Structured bool
	// Prefix is the prefix of header names. Defaults to PrefixUnderscore.
	Prefix string
	// Change is called with the message to send, for example to add a priority or an expiration. Defaults to none.
	Change func(*message.RawMessage, *amqp091.Publishing)
	// NoMandatory lets the broker silently drop events without a bound queue, for exchanges that need no listeners.
	NoMandatory bool
	// Timeout bounds connecting, and the time for confirms of a batch. Defaults to 10 seconds.
	Timeout time.Duration
}

// Publisher publishes events to RabbitMQ. It implements relay.Publisher. An event counts as sent when the broker has confirmed
// it. The other results are:
//
//   - Without a connection, if it is lost or closed by the broker, or if the broker blocks publishers (ErrBlocked) or confirms nothing
//     (ErrUnconfirmed), the destination is unavailable, which does not count as an attempt. The class is network, blocked, no_confirm,
//     or amqp_ with the broker's code.
//   - If the event is nacked (ErrNacked), or is not confirmed in time while others are, it waits one second, which does not count as an
//     attempt. Its queue is full or has failed. The classes are nacked and no_confirm.
//   - If no queue is bound (ErrUnroutable, class unroutable), the exchange does not exist (amqp_404), the user lacks the right to it
//     (amqp_403), or there is no address (unrouted), the event is refused, which counts as an attempt. The broker or the address must be
//     fixed.
//   - If the event is too large, has a property that the broker rejects (amqp_406), or is not a valid CloudEvent (malformed), it is
//     parked.
//
// If a confirm is lost, the event is sent again with the same id. Events with the same partition key are sent one after the
// other.
type Publisher struct {
	cfg  PublisherConfig
	turn chan struct{} // holds the right to connect

	busy   sync.RWMutex // held by each call of Publish
	ending sync.WaitGroup

	mu     sync.Mutex
	link   *link
	closed bool
}

// NewPublisher returns a Publisher. It connects when it first publishes.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	if err := checkDial("PublisherConfig", cfg.URL, cfg.Dial); err != nil {
		return nil, err
	}
	if cfg.Timeout < 0 {
		return nil, errors.New("amqp: PublisherConfig.Timeout is negative; use 0 for the default")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.Prefix = cmp.Or(cfg.Prefix, PrefixUnderscore)
	if cfg.Dial == nil {
		cfg.Dial = dialURL(cfg.URL, cfg.Timeout)
	}
	if cfg.Address == nil {
		cfg.Address = byDestination(cfg.Exchange)
	}
	return &Publisher{cfg: cfg, turn: make(chan struct{}, 1)}, nil
}

var errNoAddress = errors.New("amqp: the event has no destination; set a destination or PublisherConfig.Address")

func byDestination(exchange string) func(*message.RawMessage) (string, string, error) {
	return func(event *message.RawMessage) (string, string, error) {
		if event.Destination() == "" {
			return "", "", errNoAddress
		}
		return exchange, event.Destination(), nil
	}
}

// connected returns the connection, and connects if there is none.
func (p *Publisher) connected(ctx context.Context) (*link, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	before, closed := p.link, p.closed
	p.mu.Unlock()
	switch {
	case closed:
		return nil, ErrClosed
	case before != nil && !before.conn.IsClosed():
		return before, nil
	}
	conn, err := within(ctx, &p.ending, func() (*amqp091.Connection, error) { return dial(ctx, p.cfg.Dial) }, func(c *amqp091.Connection) { hangUp(c, grace) })
	if err != nil {
		return nil, err
	}
	l := newLink(conn, &p.ending)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		hangUp(conn, grace)
		return nil, ErrClosed
	}
	p.link = l
	return l, nil
}

func (p *Publisher) channel(ctx context.Context) (*channel, error) {
	l, err := p.connected(ctx)
	if err != nil {
		return nil, err
	}
	if isDone(l.blocking()) {
		return nil, ErrBlocked
	}
	return l.idleChannel(ctx)
}

// Close closes the connection, and waits for running calls of Publish. Later calls return ErrClosed.
func (p *Publisher) Close() error {
	p.mu.Lock()
	l := p.link
	p.closed, p.link = true, nil
	p.mu.Unlock()
	if l != nil {
		hangUp(l.conn, grace)
	}
	p.busy.Lock() // running calls have ended
	defer p.busy.Unlock()
	p.ending.Wait()
	return nil
}

// letter is an event with its address.
type letter struct {
	at            int // its position in the batch
	id, lane      string
	exchange, key string
	publishing    amqp091.Publishing
	err           error // set if it cannot be sent
}

func (p *Publisher) letter(at int, event *message.RawMessage) *letter {
	l := &letter{at: at, id: event.ID(), lane: event.PartitionKey()}
	var err error
	if l.exchange, l.key, err = p.cfg.Address(event); err != nil {
		l.err = unrouted(err)
		return l
	}
	if len(l.exchange) > shortText || len(l.key) > shortText {
		l.err = unrouted(fmt.Errorf("amqp: exchange %.40q, routing key %.40q are too long; use at most %d bytes each", l.exchange, l.key, shortText))
		return l
	}
	if l.publishing, err = publishing(event, p.cfg.Structured, p.cfg.Prefix); err != nil {
		l.err = malformed(fmt.Errorf("amqp: event %q: %w", event.ID(), err))
		return l
	}
	if p.cfg.Change != nil {
		p.cfg.Change(event, &l.publishing)
	}
	if err := checkPublishing(&l.publishing); err != nil {
		l.err = malformed(fmt.Errorf("amqp: event %q: %w", event.ID(), err))
	}
	return l
}
