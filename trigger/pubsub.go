package trigger

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/slot"
)

// inboxSize is the maximum number of received messages that wait for a function. Further messages wait in the network until the
// server closes the connection (client-output-buffer-limit).
const inboxSize = 100

// received is a message with its time of receipt.
type received struct {
	*redis.Message
	at time.Time
}

// pubSub subscribes to channels. Received messages outlive their connection.
type pubSub struct {
	link
	inbox  chan received
	broken chan error // the first failure of the current subscriptions

	mu      sync.Mutex
	current *subscriptions
	gaps    Gaps
}

func newPubSub(l link) *pubSub {
	return &pubSub{link: l, inbox: make(chan received, inboxSize), broken: make(chan error, 1)}
}

// sets are the channels that share a connection: all of them, or the shard channels of one tag.
func (p *pubSub) sets() [][]string {
	if !p.cfg.Sharded {
		return [][]string{p.cfg.Channels}
	}
	var sets [][]string
	for _, channel := range p.cfg.Channels {
		at := slices.IndexFunc(sets, func(set []string) bool { return slot.Of(set[0]) == slot.Of(channel) })
		if at < 0 {
			sets = append(sets, []string{channel})
		} else {
			sets[at] = append(sets[at], channel)
		}
	}
	return sets
}

// Reconnect subscribes, and returns when the server has confirmed every subscription.
func (p *pubSub) Reconnect(ctx context.Context) error {
	p.mu.Lock()
	old := p.current
	p.current = nil
	p.mu.Unlock()
	if old != nil {
		old.close()
		p.lose(time.Now()) // intact connections
	}
	p.broken = make(chan error, 1) // nothing reads from the old connections now
	next := &subscriptions{done: make(chan struct{})}
	for _, set := range p.sets() {
		if err := p.subscribe(ctx, next, set); err != nil {
			next.close()
			p.reload(ctx, err)
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = next
	p.regain()
	for _, c := range next.connections {
		next.running.Go(func() { p.read(c, next.done) })
		next.running.Go(func() { c.watch(next.done) })
	}
	return nil
}

// subscribe opens one more connection and waits for its confirmations.
func (p *pubSub) subscribe(ctx context.Context, all *subscriptions, channels []string) error {
	c := &connection{sub: p.client.Subscribe(ctx)}
	all.connections = append(all.connections, c)
	expected := len(channels)
	var err error
	switch {
	case p.cfg.Sharded:
		err = c.sub.SSubscribe(ctx, channels...)
	case len(channels) > 0:
		err = c.sub.Subscribe(ctx, channels...)
	}
	if err == nil && len(p.cfg.Patterns) > 0 {
		expected += len(p.cfg.Patterns)
		err = c.sub.PSubscribe(ctx, p.cfg.Patterns...)
	}
	deadline := time.Now().Add(replySlack)
	for err == nil && expected > 0 {
		var got any
		if got, err = c.sub.ReceiveTimeout(ctx, max(time.Until(deadline), time.Millisecond)); err != nil {
			break
		}
		switch got := got.(type) {
		case *redis.Subscription:
			expected--
		case *redis.Message:
			c.early = append(c.early, received{got, time.Now()})
		}
	}
	c.hear()
	return err
}

// read reads messages from a connection until it breaks or is abandoned.
func (p *pubSub) read(c *connection, done <-chan struct{}) {
	for _, msg := range c.early {
		p.keep(c, msg, done)
	}
	for {
		got, err := c.sub.Receive(context.Background())
		switch {
		case err != nil && c.silent.Load():
			err = errSilent
		case err == nil:
			c.hear()
		}
		switch got := got.(type) {
		case *redis.Message:
			p.keep(c, received{got, time.Now()}, done)
		case *redis.Subscription:
			err = errMoved // the server has ended it
		}
		select {
		case <-done:
			return
		default:
		}
		if err != nil {
			p.lose(time.Unix(0, c.heard.Load()))
			select {
			case p.broken <- err:
			default: // another connection broke before
			}
			return
		}
	}
}

// keep puts a message into the inbox. It waits if the inbox is full.
func (p *pubSub) keep(c *connection, msg received, done <-chan struct{}) {
	c.full.Store(true)
	select {
	case p.inbox <- msg:
	case <-done:
	}
	c.hear() // a full inbox is not silence
	c.full.Store(false)
}

// NextDelivery waits for a message.
func (p *pubSub) NextDelivery(ctx context.Context, wait time.Duration) (*Delivery, error) {
	select {
	case err := <-p.broken: // received messages are kept
		return nil, err
	default:
	}
	select {
	case msg := <-p.inbox:
		return &Delivery{Channel: msg.Channel, Pattern: msg.Pattern, Data: []byte(msg.Payload), Time: msg.at, Once: true}, nil
	case err := <-p.broken:
		return nil, err
	case <-time.After(wait):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Ack implements Driver. Pub/sub has no acks.
func (p *pubSub) Ack(context.Context, *Delivery) error { return nil }

// DeadLetter implements DeadLetterer if a key is configured.
func (p *pubSub) DeadLetter(ctx context.Context, d *Delivery, reason string) error {
	return p.writeDeadLetter(ctx, d, reason, map[string]string{"channel": d.Channel, "pattern": d.Pattern, dataField: string(d.Data)})
}

// Close ends the subscriptions.
func (p *pubSub) Close() error {
	p.mu.Lock()
	current := p.current
	p.current = nil
	p.mu.Unlock()
	if current != nil {
		current.close()
	}
	if left := len(p.inbox); left > 0 {
		p.log.Warn("trigger: received messages discarded", "messages", left)
	}
	return p.end()
}

// Gaps implements GapCounter.
func (p *pubSub) Gaps() Gaps {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gaps
}

// lose opens a gap, unless one is open.
func (p *pubSub) lose(heard time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gaps.Count > 0 && p.gaps.Last.Until.IsZero() {
		return
	}
	p.gaps.Count++
	p.gaps.Last = Gap{From: heard}
}

// regain closes the open gap. It must be called with the lock held.
func (p *pubSub) regain() {
	if p.gaps.Count == 0 || !p.gaps.Last.Until.IsZero() {
		return
	}
	p.gaps.Last.Until = time.Now()
	length := p.gaps.Last.Until.Sub(p.gaps.Last.From)
	p.gaps.Total += length
	p.log.Warn("trigger: messages lost between subscriptions", "from", p.gaps.Last.From, "until", p.gaps.Last.Until, "length", length)
}
