package sqltx

import (
	"context"
	"database/sql"
	"iter"
	"slices"

	"github.com/luatx/luatx/message"
)

// ParkedEvent is an event that used up its attempts or cannot be published.
type ParkedEvent struct {
	// ID is the number of the row, for Rearm and Discard.
	ID int64
	// Topic is the destination of the event, and Type its type.
	Topic, Type string
	// Attempts is how often the event was tried.
	Attempts int
	// Error is the error of the last attempt.
	Error string
	// Message is the event, or nil if it cannot be decoded.
	Message *message.RawMessage
}

const parkedPage = 100

// Parked lists the parked events, oldest first, in pages. They stay until they are re-armed or discarded.
func (p *OutboxPublisher) Parked(ctx context.Context) iter.Seq2[ParkedEvent, error] {
	return func(yield func(ParkedEvent, error) bool) {
		if p.err != nil {
			yield(ParkedEvent{}, p.err)
			return
		}
		for last := int64(0); ; {
			page, err := p.parkedAfter(ctx, last)
			if err != nil {
				yield(ParkedEvent{}, err)
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				last = e.ID
			}
			if len(page) < parkedPage {
				return
			}
		}
	}
}

func (p *OutboxPublisher) parkedAfter(ctx context.Context, last int64) ([]ParkedEvent, error) {
	scan := func(rows *sql.Rows) (ParkedEvent, error) {
		var r row
		var e ParkedEvent
		if err := r.scan(rows, &e.Error); err != nil {
			return e, err
		}
		e.ID, e.Topic, e.Type, e.Attempts = r.id, r.topic, r.eventType, r.attempts
		if msg, err := r.decode(); err == nil {
			e.Message = msg
		}
		return e, nil
	}
	return query(ctx, p.cfg.DB, scan, p.dialect.statement(
		"SELECT "+columns+", COALESCE(last_error, '') FROM %[1]s WHERE parked = TRUE AND published = FALSE AND id > ? ORDER BY id LIMIT ?", p.table), last, parkedPage)
}

// Rearm makes parked events pending again with all their attempts, and returns how many of the ids were parked. It changes 500 of
// them at once. If that fails, it returns the number of those that it has changed before.
func (p *OutboxPublisher) Rearm(ctx context.Context, ids ...int64) (int, error) {
	n, err := p.onParked(ctx, "UPDATE %[1]s SET parked = FALSE, attempts = 0, lease = NULL, next_attempt_at = NOW_MS", ids)
	p.Wake()
	return n, err
}

// Discard deletes parked events like Rearm, and returns how many of the ids were parked.
func (p *OutboxPublisher) Discard(ctx context.Context, ids ...int64) (int, error) {
	n, err := p.onParked(ctx, "DELETE FROM %[1]s", ids)
	p.Wake() // events that waited for them can continue
	return n, err
}

func (p *OutboxPublisher) onParked(ctx context.Context, statement string, ids []int64) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	changed := 0
	for some := range slices.Chunk(ids, settleAtOnce) { // databases limit the number of arguments
		n, err := p.affect(ctx, statement+" WHERE parked = TRUE AND published = FALSE AND id IN ("+marks(len(some))+")", anys(some)...)
		if changed += n; err != nil {
			return changed, err
		}
	}
	return changed, nil
}
