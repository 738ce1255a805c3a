package sqltx

import (
	"context"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/message"
)

type outcome int

const (
	sent   outcome = iota
	failed         // tried again after a backoff
	parked
	back         // given back, as if it had not been claimed
	acknowledged // the caller of Acknowledged has written it
)

// settlement is the outcome to write for a row.
type settlement struct {
	*held
	what  outcome
	err   error
	tried int // number of attempts, including this one
	delay time.Duration
}

const (
	maxError     = 1024             // maximum size of a stored error, in bytes
	writeTimeout = 15 * time.Second // for one statement
	settleAtOnce = 500              // rows of one statement
)

// settle queues an outcome for the writer, or writes it itself if the writer has stopped.
func (s *pump) settle(h *held, what outcome, err error) {
	e := s.judge(h, what, err)
	s.mu.Lock()
	if !s.ended {
		s.settled, s.unsaved = append(s.settled, e), append(s.unsaved, e)
		s.mu.Unlock()
		notify(s.signal)
		notify(s.writer)
		return
	}
	s.mu.Unlock()
	if err := s.save(context.Background(), []settlement{e}); err != nil {
		s.cfg.Logger.Error("outbox: event not settled", "table", s.cfg.Table, "event", h.id, "error", err)
	}
}

// giveBack settles a row that was not tried.
func (s *pump) giveBack(h *held) { s.settle(h, back, nil) }

// judge decides the consequence of a failed attempt.
func (s *pump) judge(h *held, what outcome, err error) settlement {
	e := settlement{held: h, what: what, err: err, tried: h.attempts}
	if !h.counted {
		e.tried++
	}
	if what != failed {
		return e
	}
	fate := settle.Decide(err)
	switch {
	case fate == settle.GiveBack:
		e.what = back
	case fate == settle.Park || e.tried >= s.cfg.Attempts:
		e.what = parked
		return e
	}
	e.delay = settle.Pause(err, message.Backoff{Base: s.cfg.BackoffBase, Max: s.cfg.BackoffCap}.Delay(e.tried))
	return e
}

// write writes queued settlements in batches until stop is closed and none is left. It retries failed writes, and gives up
// DrainTimeout after the stop.
func (s *pump) write(ctx context.Context, stop <-chan struct{}) {
	var left []settlement
	var pause time.Duration
	var giveUp time.Time
	for {
		s.mu.Lock()
		left = append(left, s.unsaved...)
		s.unsaved = nil
		s.ended = stop == nil && (len(left) == 0 || time.Now().After(giveUp))
		ended := s.ended
		s.mu.Unlock()
		if ended {
			if len(left) > 0 {
				s.cfg.Logger.Error("outbox: events not settled", "table", s.cfg.Table, "events", len(left))
			}
			return
		}
		more, again := s.writer, (<-chan time.Time)(nil)
		if len(left) > 0 {
			err := s.save(ctx, left)
			if err == nil {
				s.written(left)
				left, pause = nil, 0
				continue
			}
			s.cfg.Logger.Warn("outbox: settlement failed", "table", s.cfg.Table, "events", len(left), "error", err)
			pause = min(max(2*pause, 20*time.Millisecond), 5*time.Second)
			more, again = nil, time.After(pause)
		}
		select {
		case <-more:
		case <-again:
		case <-stop:
			stop, giveUp = nil, time.Now().Add(s.cfg.DrainTimeout)
		}
	}
}

// written notifies the loop of rows that are written and need not be held any more.
func (s *pump) written(batch []settlement) {
	s.mu.Lock()
	for _, e := range batch {
		s.saved = append(s.saved, e.held)
		if e.what == parked {
			s.cfg.Logger.Error("outbox: event parked", "table", s.cfg.Table, "event", e.id, "type", e.eventType, "attempts", e.tried, "error", e.err)
		}
	}
	s.mu.Unlock()
	notify(s.signal)
}

// save writes settlements. It may safely write one twice: sent always wins, and the others only apply under their own lease.
func (s *pump) save(ctx context.Context, batch []settlement) error {
	for len(batch) > 0 {
		n := min(len(batch), settleAtOnce)
		if err := s.saveSome(ctx, batch[:n]); err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// returned groups rows that are given back with the same values.
type returned struct {
	lease   string
	counted bool
	delay   time.Duration
}

func (s *pump) saveSome(ctx context.Context, batch []settlement) error {
	var published []any
	backs := map[returned][]any{}
	for _, e := range batch {
		switch e.what {
		case sent:
			published = append(published, e.id)
		case back:
			group := returned{e.lease, e.counted, e.delay}
			backs[group] = append(backs[group], e.id)
		case failed, parked:
			if err := s.exec(ctx, "UPDATE %[1]s SET lease = NULL, next_attempt_at = NOW_MS + ?, attempts = ?, parked = ?, last_error = ? WHERE published = FALSE AND lease = ? AND id = ?",
				e.delay.Milliseconds(), e.tried, e.what == parked, clip(e.err), e.lease, e.id); err != nil {
				return err
			}
		case acknowledged:
		}
	}
	if len(published) > 0 {
		if err := s.exec(ctx, "UPDATE %[1]s SET published = TRUE, parked = FALSE, lease = NULL WHERE published = FALSE AND id IN ("+marks(len(published))+")", published...); err != nil {
			return err
		}
	}
	for group, ids := range backs {
		counted := 0
		if group.counted {
			counted = 1
		}
		if err := s.exec(ctx, "UPDATE %[1]s SET lease = NULL, next_attempt_at = NOW_MS + ?, attempts = attempts - ? WHERE published = FALSE AND lease = ? AND id IN ("+marks(len(ids))+")",
			append([]any{group.delay.Milliseconds(), counted, group.lease}, ids...)...); err != nil {
			return err
		}
	}
	return nil
}

func (p *OutboxPublisher) exec(ctx context.Context, statement string, args ...any) error {
	_, err := p.affect(ctx, statement, args...)
	return err
}

func (p *OutboxPublisher) affect(ctx context.Context, statement string, args ...any) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	result, err := p.cfg.DB.ExecContext(ctx, p.dialect.statement(statement, p.table), args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("rows affected: %w", err)
	}
	return int(n), nil
}
