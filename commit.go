package luatx

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
)

func (t *Transactor) commit(ctx context.Context, tx *Tx, input commit.Input) (Result, error) {
	ready, err := t.prepare(ctx, tx, input)
	if err != nil {
		return Result{}, err
	}
	if !ready {
		return t.nothing(), nil
	}
	if g, ok := ctx.Value(gatheringKey{t}).(joiner); ok {
		g.join(tx)
	} else {
		t.send(ctx, []*Tx{tx})
	}
	return t.finish(ctx, tx)
}

// gatheringKey is the key of the gathering that commits the transactions of a Transactor.
type gatheringKey struct{ of *Transactor }

// joiner is the value that a context holds under gatheringKey. It commits transactions together; join returns when tx has its
// outcome.
type joiner interface{ join(tx *Tx) }

// prepare closes a transaction and prepares it for sending. It returns false if there is nothing to commit and no id to remember.
func (t *Transactor) prepare(ctx context.Context, tx *Tx, input commit.Input) (ready bool, err error) {
	tx.end()
	tx.commit.Input = input
	if t.cfg.Observer.Committed != nil {
		tx.began = time.Now()
	}
	err = tx.assemble()
	if err == nil && !tx.claimed && len(tx.cmds) == 0 && len(tx.commit.Events) == 0 {
		return false, tx.verify(ctx) // the function may have decided to write nothing because of what it read
	}
	if err == nil {
		tx.arrange()
		err = t.ensureChecked(ctx, tx.home)
	}
	if err != nil {
		tx.err = err
		_, err := t.finish(ctx, tx)
		return false, err
	}
	return true, nil
}

// finish reports the outcome of a transaction to the recorded commands, the Observer and the caller.
func (t *Transactor) finish(ctx context.Context, tx *Tx) (Result, error) {
	if t.cfg.Observer.Committed != nil {
		defer t.observed(ctx, tx)
	}
	if tx.err != nil {
		fail(tx.cmds, tx.err)
		return Result{}, tx.err
	}
	out := &tx.commit.Outcome
	switch {
	case !out.Woken:
	case tx.relay == nil:
		t.inside.Unattended(tx.home.Slot)
	case tx.turnedAway():
		t.inside.Wake(tx.home.Slot)
	}
	if len(tx.cmds) > 0 {
		t.fill(tx.ran(), out)
	}
	return Result{Outcome: outcomes[out.State], Replicated: tx.commit.Replicated}, nil
}

// notifyRelay notifies the inline relay of the outcome of a transaction.
func (tx *Tx) notifyRelay() {
	if tx.relay == nil || tx.err != nil && !tx.reserved {
		return
	}
	var events []shard.Event
	if out := &tx.commit.Outcome; tx.err == nil && (out.State == commit.Committed || out.Same) {
		events = slices.Concat(tx.commit.Events, out.Emitted) // a copy, because the relay keeps the slice
	}
	tx.relay.Committed(tx.home.Slot, events, tx.reserved)
}

// reserve asks the inline relay for a slot in which it publishes the transaction's events at once.
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

// turnedAway reports whether the transaction has plain events but got no slot of the inline relay. The events might wait there,
// so the caller wakes other relays too.
func (tx *Tx) turnedAway() bool { return !tx.reserved && tx.hasPlainEvents() }

func (tx *Tx) hasPlainEvents() bool {
	return slices.ContainsFunc(tx.commit.Events, func(e shard.Event) bool { return e.Plain() })
}

// send commits transactions and retries each under a new token until its outcome is certain. It then notifies the inline relay of
// all of them, so that the relay publishes together what was committed together. The tail is sent once, behind the first commits.
func (t *Transactor) send(ctx context.Context, batch []*Tx, tail ...redis.Cmder) {
	until := time.Now().Add(t.cfg.CommitTimeout)
	patience := until
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until, patience = deadline, time.Time{} // ctx ends the wait
	}
	for _, tx := range batch {
		t.reserve(tx)
		if claim := link.ClaimOf(tx); claim != nil {
			claim.Position.After = claim.After()
		}
	}
	for open := batch; len(open) > 0; {
		var few [4]*commit.Commit
		// The script rejects a request that arrives after its caller has given up. It compares NotAfter with the server's clock.
		commits, notAfter := few[:0], t.serverTime(until).Add(slack)
		for _, tx := range open {
			tx.commit.Token, tx.commit.NotAfter = tx.delivery.token(), notAfter
			commits = append(commits, &tx.commit)
		}
		t.commits.Send(ctx, patience, commits, tail...)
		tail = nil
		open = t.judge(ctx, until, open, batch)
	}
	for _, tx := range batch {
		if tx.err == nil {
			tx.err = outcomeError(&tx.commit.Outcome, tx)
		}
		tx.notifyRelay()
	}
}

// judge decides which replies of open transactions are final, resolves those whose outcome is unknown, and returns those to send
// again. The batch has all transactions that are sent together.
func (t *Transactor) judge(ctx context.Context, until time.Time, open, batch []*Tx) []*Tx {
	if !slices.ContainsFunc(open, (*Tx).early) {
		return t.judgeEach(ctx, until, open)
	}
	var others, early []*Tx
	for _, tx := range open {
		if tx.early() {
			early = append(early, tx)
		} else {
			others = append(others, tx)
		}
	}
	again := t.judgeEach(ctx, until, others)
	var final []*Tx
	for _, tx := range early { // in the order of their positions
		if ctx.Err() == nil && time.Now().Before(until) && tx.follows(batch, again) {
			again = append(again, tx)
		} else {
			final = append(final, tx)
		}
	}
	t.judgeEach(ctx, until, final)
	inOrder(again)
	return again
}

// early reports whether the server had a transaction before the one in front of it.
func (tx *Tx) early() bool {
	return tx.commit.Position != nil && tx.commit.Err == nil && tx.commit.Outcome.State == commit.Early
}

// follows reports whether the transaction in front of tx has committed since, or is to be sent again. Repeated requests may arrive
// out of order, because each travels separately.
func (tx *Tx) follows(batch, again []*Tx) bool {
	own := tx.commit.Position
	return slices.ContainsFunc(batch, func(other *Tx) bool {
		p := other.commit.Position
		return p != nil && p.Field == own.Field && p.Offset == own.After &&
			(slices.Contains(again, other) || other.err == nil && outcomes[other.commit.Outcome.State] != 0)
	})
}

// judgeEach is judge for transactions that do not wait for each other.
func (t *Transactor) judgeEach(ctx context.Context, until time.Time, open []*Tx) []*Tx {
	var again, unclear []*Tx
	var now time.Time // transactions that shared a script have the same time
	for _, tx := range open {
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
	answerUnknown         // this request did not commit, but an earlier one without a reply may still arrive
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

// resolve asks the server for the outcome of a token, and prevents a late copy of the commit from changing it.
func (t *Transactor) resolve(ctx context.Context, tx *Tx) {
	ctx, cancel := tx.lookup(ctx)
	defer cancel()
	c, cause := &tx.commit, tx.err
	state, text, _, err := t.commits.Resolve(ctx, c.Shard, c.Digest, c.Position, c.Token, c.NotAfter.Add(slack))
	switch {
	case err != nil:
		tx.err = &UnknownError{newReceipt(tx), fmt.Errorf("%w; asked what became of it: %w", cause, err)}
	case state == commit.Tombstoned:
		tx.err = fmt.Errorf("luatx: not committed: %w", cause)
	default:
		c.Outcome, c.Replicated, tx.err = commit.Outcome{State: state, Text: text}, false, nil
	}
}

// nothing returns the result of a transaction with nothing to commit.
func (t *Transactor) nothing() Result {
	return Result{Outcome: Committed, Replicated: t.cfg.Durability.script().On()}
}
