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
	// URL is the broker's: amqp://user:password@host:5672/vhost, or amqps.
	URL string
	// Dial connects, instead of URL.
	Dial DialFunc
	// Exchange is where events go to, with their destination as the routing key. Defaults to the default exchange, where
	// the destination is the name of a queue.
	Exchange string
	// Address names exchange and routing key of each event. Events for which it returns an error are refused. Defaults to
	// Exchange and the event's destination, which must not be empty then.
	Address func(*message.RawMessage) (exchange, key string, err error)
	// Structured writes an event as JSON into the body. Otherwise data is the body, and attributes are headers.
	Structured bool
	// Prefix is that of the headers' names. Defaults to PrefixUnderscore.
	Prefix string
	// Change is called with what is about to be sent, to add a priority or an expiration, say. Defaults to nothing.
	Change func(*message.RawMessage, *amqp091.Publishing)
	// NoMandatory makes the broker drop in silence what no queue is bound for: for exchanges to which nobody need listen.
	NoMandatory bool
	// Timeout bounds connecting, and how long the broker may take to confirm a batch. Defaults to 10 seconds.
	Timeout time.Duration
}

// Publisher publishes events to RabbitMQ. It implements relay.Publisher: an event counts as sent when the broker has
// confirmed it. Its answers otherwise:
//
//   - No connection, one that was lost or that the broker has closed, a broker that blocks publishers (ErrBlocked) or confirms
//     nothing (ErrUnconfirmed): unavailable, which costs no attempt. The class is network, blocked, no_confirm, or amqp_ and
//     the code of the broker.
//   - Nacked (ErrNacked), or not confirmed in time while others were: the event has to wait a second, which costs no attempt.
//     Its queue is full, or has failed. The classes are nacked and no_confirm.
//   - No queue is bound (ErrUnroutable, class unroutable), no such exchange (amqp_404), no right to it (amqp_403), no address
//     (unrouted): refused, which counts an attempt. Somebody has to mend the broker or the address.
//   - Too large, or with a property that the broker refuses (amqp_406), or no CloudEvent can be made of it (malformed): parked.
//
// An event whose confirm was lost is sent again, under its id. Events of one partition key are sent one after the other.
type Publisher struct {
	cfg  PublisherConfig
	turn chan struct{} // holds the right to connect

	busy   sync.RWMutex // held by each call of Publish
	ending sync.WaitGroup

	mu     sync.Mutex
	link   *link
	closed bool
}

// NewPublisher makes a Publisher. It connects when it has something to publish.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	if err := checkDial("PublisherConfig", cfg.URL, cfg.Dial); err != nil {
		return nil, err
	}
	if cfg.Timeout < 0 {
		return nil, errors.New("amqp: PublisherConfig.Timeout is negative: use 0 for the default")
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

var errNoAddress = errors.New("amqp: the event has no destination: set one, or PublisherConfig.Address")

func byDestination(exchange string) func(*message.RawMessage) (string, string, error) {
	return func(event *message.RawMessage) (string, string, error) {
		if event.Destination() == "" {
			return "", "", errNoAddress
		}
		return exchange, event.Destination(), nil
	}
}

// connected returns the connection, a new one where there is none.
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

// channel returns a channel for a batch.
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

// Close closes the connection, and waits for calls of Publish that are under way. What is published later is answered
// ErrClosed.
func (p *Publisher) Close() error {
	p.mu.Lock()
	l := p.link
	p.closed, p.link = true, nil
	p.mu.Unlock()
	if l != nil {
		hangUp(l.conn, grace)
	}
	p.busy.Lock() // calls that were under way have ended
	defer p.busy.Unlock()
	p.ending.Wait()
	return nil
}

// letter is an event and where it goes to.
type letter struct {
	at            int // its position in the batch
	id, lane      string
	exchange, key string
	publishing    amqp091.Publishing
	err           error // it cannot be sent
}

func (p *Publisher) letter(at int, event *message.RawMessage) *letter {
	l := &letter{at: at, id: event.ID(), lane: event.PartitionKey()}
	var err error
	if l.exchange, l.key, err = p.cfg.Address(event); err != nil {
		l.err = unrouted(err)
		return l
	}
	if len(l.exchange) > shortText || len(l.key) > shortText {
		l.err = unrouted(fmt.Errorf("amqp: exchange %.40q, routing key %.40q: use at most %d bytes each", l.exchange, l.key, shortText))
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
