package trigger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/sleep"
)

// maxOpen bounds the finished entries that wait for an earlier unfinished one.
const maxOpen = 10_000

// plain reads a stream without a group. It keeps in memory its position and the entries before it that are not finished.
// LastIDKey holds the last entry up to which all are finished.
type plain struct {
	link

	mu       sync.Mutex
	position string       // the last entry read; empty before the first read
	open     []*openEntry // by id: unfinished entries, and finished ones behind an unfinished one
	mark     string       // all entries up to it are finished

	storing sync.Mutex
	stored  string // the value of LastIDKey
}

// openEntry is an entry that was read.
type openEntry struct {
	id       string
	fields   map[string]string
	attempts int64
	held     bool // delivered
	settled  bool
}

// Reconnect determines the first position once, and checks that the stream is readable.
func (p *plain) Reconnect(ctx context.Context) error {
	start, err := p.start(ctx)
	if err == nil && p.position == "" && p.cfg.LastIDKey != "" {
		start, err = p.restore(ctx, start)
	}
	if err != nil {
		p.reload(ctx, err)
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.position == "" {
		p.position, p.mark = start, start
	}
	return nil
}

// restore reads the position of an earlier process. If there is none, it stores the first position.
func (p *plain) restore(ctx context.Context, otherwise string) (string, error) {
	kept, err := p.client.Get(ctx, p.cfg.LastIDKey).Result()
	switch {
	case errors.Is(err, redis.Nil): // the next process must not begin behind an entry that this one has not finished
		p.stored = otherwise
		return otherwise, p.client.Set(ctx, p.cfg.LastIDKey, otherwise, 0).Err()
	case group.HasCode(err, "WRONGTYPE") || err == nil && (kept == "$" || !entryID.MatchString(kept)):
		return "", &OptionError{Option: "LastIDKey", Remedy: "use a separate key", Err: fmt.Errorf("%w: the key does not have an entry id", ErrOption)}
	default:
		p.stored = kept
		return kept, err
	}
}

// NextDelivery returns a returned entry, lowest id first, or else a new one.
func (p *plain) NextDelivery(ctx context.Context, wait time.Duration) (*Delivery, error) {
	d, full := p.again()
	if d != nil {
		return d, nil
	}
	if full {
		sleep.For(ctx, wait)
		return nil, ctx.Err()
	}
	ctx, cancel := within(ctx, wait)
	defer cancel()
	streams, err := p.client.XRead(ctx, &redis.XReadArgs{Streams: []string{p.cfg.Stream, p.position}, Count: 1, Block: wait}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entry := streams[0].Messages[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.position = entry.ID
	e := &openEntry{id: entry.ID, fields: textFields(entry.Values)}
	p.open = append(p.open, e)
	return p.deliver(e), nil
}

// again returns a returned entry, and whether too many entries are open to read another one.
func (p *plain) again() (d *Delivery, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.open {
		if !e.held && !e.settled {
			return p.deliver(e), false
		}
	}
	return nil, len(p.open) >= maxOpen
}

// deliver returns the delivery of an entry. The caller holds the lock.
func (p *plain) deliver(e *openEntry) *Delivery {
	e.held = true
	e.attempts++
	return &Delivery{
		Stream: p.cfg.Stream, ID: e.id, Fields: e.fields, Attempt: e.attempts, Time: time.Now(),
		Done: func(settled bool) { p.done(e, settled) },
	}
}

func (p *plain) done(e *openEntry, settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.held = false
	if settled {
		p.settle(e.id)
	}
}

// settle records that an entry is finished, and advances the position. The caller holds the lock.
func (p *plain) settle(id string) {
	for _, e := range p.open {
		if e.id == id {
			e.settled, e.fields = true, nil
		}
	}
	for len(p.open) > 0 && p.open[0].settled {
		p.mark = p.open[0].id
		p.open = slices.Delete(p.open, 0, 1)
	}
}

// Ack records that an entry is finished, and stores the position.
func (p *plain) Ack(ctx context.Context, d *Delivery) error {
	p.storing.Lock() // an older position must not overwrite a newer one
	defer p.storing.Unlock()
	p.mu.Lock()
	p.settle(d.ID)
	mark := p.mark
	p.mu.Unlock()
	if p.cfg.LastIDKey == "" || mark == p.stored {
		return nil
	}
	if err := p.client.Set(ctx, p.cfg.LastIDKey, mark, 0).Err(); err != nil {
		return err
	}
	p.stored = mark
	return nil
}

// DeadLetter implements DeadLetterer. It writes the copy first, so a crash may write it twice.
func (p *plain) DeadLetter(ctx context.Context, d *Delivery, reason string) error {
	if err := p.writeDeadLetter(ctx, d, reason, d.Fields); err != nil {
		return err
	}
	return p.Ack(ctx, d)
}

// Close closes the client.
func (p *plain) Close() error { return p.end() }

// writeDeadLetter writes a dead letter in the format of internal/lua/deadletter.lua.
func (l *link) writeDeadLetter(ctx context.Context, d *Delivery, reason string, fields map[string]string) error {
	at := d.Time.UnixMilli()
	values := []any{
		"dead-reason", group.Reason(reason), "dead-stream", d.Stream, "dead-entry", d.ID, "dead-group", d.Group,
		"dead-consumer", d.Consumer, "dead-deliveries", d.Attempt, "dead-first", at, "dead-last", at,
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		values = append(values, name, fields[name])
	}
	if err := l.client.XAdd(ctx, &redis.XAddArgs{Stream: l.cfg.DeadLetter, Values: values}).Err(); err != nil {
		return err
	}
	l.log.With(d.subject()...).Error("trigger: delivery dead-lettered", "dead_letter", l.cfg.DeadLetter)
	return nil
}
