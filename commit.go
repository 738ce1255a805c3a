package luatx

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/shard"
)

// commit sends a transaction and tells what became of it.
func (t *Transactor) commit(ctx context.Context, tx *Tx, input commit.Input) (Result, error) {
	ready, err := t.prepare(ctx, tx, input)
	if err != nil {
		return Result{}, err
	}
	if !ready {
		return t.nothing(), nil
	}
	if g, ok := ctx.Value(gatheringKey{}).(joiner); ok {
		g.join(tx)
	} else {
		t.send(ctx, []*Tx{tx})
	}
	return t.finish(ctx, tx)
}

type gatheringKey struct{}

// joiner is what a context holds by gatheringKey: it commits transactions together, and returns when the given one is answered.
type joiner interface{ join(tx *Tx) }

// prepare closes a transaction and makes it ready to be sent. It returns false if there is nothing to commit, and nothing
// to remember.
func (t *Transactor) prepare(ctx context.Context, tx *Tx, input commit.Input) (ready bool, err error) {
	tx.end()
	tx.commit.Input = input
	if t.cfg.Observer.Committed != nil {
		now := time.Now()
		tx.began = &now
	}
	err = tx.assemble()
	if err == nil && !tx.claimed && len(tx.cmds) == 0 && len(tx.commit.Events) == 0 {
		return false, tx.verify(ctx) // though its function has decided on what it read
	}
	if err == nil {
		err = t.ensureChecked(ctx, tx.commit.Shard)
	}
	if err != nil {
		tx.err = err
		_, err := t.finish(ctx, tx)
		return false, err
	}
	return true, nil
}

// finish tells the recorded commands, the Observer and the caller what became of a transaction.
func (t *Transactor) finish(ctx context.Context, tx *Tx) (Result, error) {
	if t.cfg.Observer.Committed != nil {
		defer t.observed(ctx, tx)
	}
	if tx.err != nil {
		fail(tx.cmds, tx.err)
		return Result{}, tx.err
	}
	out := &tx.commit.Outcome
	if out.Woken && (tx.relay == nil || tx.turnedAway()) {
		t.inside.Wake(tx.commit.Shard.Slot)
	}
	if len(tx.cmds) > 0 {
		t.fill(tx.ran(), out)
	}
	return Result{Outcome: outcomes[out.State], Replicated: tx.commit.Replicated}, nil
}

// tell tells the inline relay what became of a transaction.
func (tx *Tx) tell() {
	if tx.relay == nil || tx.err != nil && !tx.reserved {
		return
	}
	var events []shard.Event
	if out := &tx.commit.Outcome; tx.err == nil && (out.State == commit.Committed || out.Same) {
		events = slices.Concat(tx.commit.Events, out.Emitted) // the relay keeps it
	}
	tx.relay.Committed(tx.commit.Shard.Slot, events, tx.reserved)
}

// reserve asks the inline relay for a slot.
func (t *Transactor) reserve(tx *Tx) {
	tx.relay, tx.reserved = nil, false
	relay, calls := t.inside.Relay(), tx.commit.Calls()
	if relay == nil || !calls && len(tx.commit.Events) == 0 {
		return
	}
	tx.relay = relay
	if !calls && !tx.hasPlainEvents() {
		return
	}
	var lease time.Duration
	if lease, tx.reserved = relay.Reserve(); tx.reserved {
		tx.commit.Delay = lease
	}
}

// turnedAway reports whether the inline relay had no slot: what would be published at once may wait there.
func (tx *Tx) turnedAway() bool { return !tx.reserved && tx.hasPlainEvents() }

func (tx *Tx) hasPlainEvents() bool {
	return slices.ContainsFunc(tx.commit.Events, func(e shard.Event) bool { return e.Plain() })
}

// send commits transactions, each under one token after another, until for each there is an answer that holds, which
// the relay is told of at once, so that it publishes together what was committed together. The tail goes out once,
// behind them.
func (t *Transactor) send(ctx context.Context, batch []*Tx, tail ...redis.Cmder) {
	until := time.Now().Add(t.cfg.CommitTimeout)
	patience := until
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until, patience = deadline, time.Time{} // his context says when
	}
	for _, tx := range batch {
		t.reserve(tx)
	}
	for open := batch; len(open) > 0; {
		var few [4]*commit.Commit
		// In the server's time, a request sent now is too late after its caller has given up.
		commits, notAfter := few[:0], t.serverTime(until).Add(slack)
		for _, tx := range open {
			tx.commit.Token, tx.commit.NotAfter = tx.delivery.token(), notAfter
			commits = append(commits, &tx.commit)
		}
		t.commits.Send(ctx, patience, commits, tail...)
		tail = nil
		open = t.judge(ctx, until, open)
	}
	for _, tx := range batch {
		if tx.err == nil {
			tx.err = outcomeError(&tx.commit.Outcome, tx)
		}
		tx.tell()
	}
}

// judge decides which answers hold, asks what became of the transactions without one, and returns those that are
// to be sent again.
func (t *Transactor) judge(ctx context.Context, until time.Time, batch []*Tx) []*Tx {
	var again, unclear []*Tx
	var now time.Time // those that shared a script share the time
	for _, tx := range batch {
		switch verdict := tx.verdict(); {
		case verdict == answerUnknown:
			unclear = append(unclear, tx)
		case verdict == answerLate && ctx.Err() == nil && time.Now().Before(until):
			again = append(again, tx)
		}
		if tx.commit.Err == nil && !tx.commit.Now.Equal(now) {
			now = tx.commit.Now
			t.setClock(now)
		}
	}
	if len(unclear) > 0 {
		ctx, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		t.resolveAll(ctx, unclear)
	}
	return again
}

func (t *Transactor) resolveAll(ctx context.Context, unclear []*Tx) {
	var wg sync.WaitGroup
	for _, tx := range unclear[1:] {
		wg.Go(func() { t.resolve(ctx, tx) })
	}
	t.resolve(ctx, unclear[0])
	wg.Wait()
}

type verdict int

const (
	answerHolds   verdict = iota
	answerLate            // the clock was off; no copy of this token can take effect any more
	answerUnknown         // not committed by this request; an earlier one that was not answered may still be under way
)

func (tx *Tx) verdict() verdict {
	c := &tx.commit
	switch {
	case c.Err != nil && c.Unanswered:
		tx.err = c.Err
		return answerUnknown
	case c.Err != nil:
		tx.err = tx.t.serverError(c.Err)
		return answerHolds
	}
	if c.Outcome.State == commit.Expired {
		if c.Now.After(c.NotAfter) {
			return answerLate
		}
		return answerHolds
	}
	if !c.Unanswered || c.Outcome.State == commit.Broken {
		return answerHolds
	}
	if tx.err = outcomeError(&c.Outcome, tx); tx.err != nil {
		return answerUnknown
	}
	return answerHolds
}

// resolve finds out what became of a token, and makes sure that it stays so.
func (t *Transactor) resolve(ctx context.Context, tx *Tx) {
	ctx, cancel := tx.lookup(ctx)
	defer cancel()
	c, cause := &tx.commit, tx.err
	state, text, _, err := t.commits.Resolve(ctx, c.Shard, c.Digest, c.Token, c.NotAfter.Add(slack))
	switch {
	case err != nil:
		tx.err = &UnknownError{newReceipt(tx), fmt.Errorf("%w; asked what became of it: %w", cause, err)}
	case state == commit.Tombstoned:
		tx.err = fmt.Errorf("luatx: not committed: %w", cause)
	default:
		c.Outcome, c.Replicated, tx.err = commit.Outcome{State: state, Text: text}, false, nil
	}
}

// nothing is the result of a transaction in which there was nothing to commit.
func (t *Transactor) nothing() Result {
	return Result{Outcome: Committed, Replicated: t.cfg.Durability.script().On()}
}
