package luatx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
)

const (
	// slack is added to the time by which a commit must arrive: half a round trip, and clocks of masters that
	// are not quite one.
	slack = time.Second
	// resolveTimeout bounds the question what became of a commit whose reply was lost.
	resolveTimeout = 5 * time.Second
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
	if g, ok := ctx.Value(gatheringKey{}).(*gathering); ok {
		g.join(tx)
	} else {
		t.send(ctx, []*Tx{tx})
	}
	return t.finish(ctx, tx)
}

// prepare closes a transaction and makes it ready to be sent. It returns false if there is nothing to commit, and nothing
// to remember.
func (t *Transactor) prepare(ctx context.Context, tx *Tx, input commit.Input) (ready bool, err error) {
	tx.close()
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
		t.fill(ran(tx.cmds, tx.commit.Order), out)
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

var outcomes = map[commit.State]Outcome{
	commit.Committed: Committed, commit.Replayed: Replayed, commit.Duplicate: Duplicate,
}

// fill gives the recorded commands their replies, or the first commit's where it has kept them.
func (t *Transactor) fill(cmds []redis.Cmder, out *commit.Outcome) {
	var err error
	switch {
	case out.State == commit.Committed:
		err = t.filler.Fill(cmds, out.Replies)
	case out.Kept != "":
		err = t.filler.FillFrames(cmds, out.Kept)
	default:
		fail(cmds, ErrRepliesLost)
	}
	if err != nil { // the commands carry the error
		t.cfg.Logger.Error("luatx: committed, but its replies could not be read", "error", err)
	}
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
		case verdict == unknown:
			unclear = append(unclear, tx)
		case verdict == late && ctx.Err() == nil && time.Now().Before(until):
			again = append(again, tx)
		}
		if tx.commit.Err == nil && !tx.commit.Now.Equal(now) {
			now = tx.commit.Now
			t.observe(now)
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
	holds   verdict = iota
	late            // the clock was off; no copy of this token can take effect any more
	unknown         // not committed by this request; an earlier one that was not answered may still be under way
)

func (tx *Tx) verdict() verdict {
	c := &tx.commit
	switch {
	case c.Err != nil && c.Unanswered:
		tx.err = c.Err
		return unknown
	case c.Err != nil:
		tx.err = tx.t.serverError(c.Err)
		return holds
	}
	if c.Outcome.State == commit.Expired {
		if c.Now.After(c.NotAfter) {
			return late
		}
		return holds
	}
	if !c.Unanswered || c.Outcome.State == commit.Broken {
		return holds
	}
	if tx.err = outcomeError(&c.Outcome, tx); tx.err != nil {
		return unknown
	}
	return holds
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

// serverError translates an error that came instead of an outcome.
func (t *Transactor) serverError(err error) error {
	if ended, ok := errors.AsType[*eval.ServerError](err); ok {
		if text := ended.Err.Error(); strings.Contains(text, "rror compiling script") {
			return fmt.Errorf("luatx: script %s: %s", ended.Script, t.commits.Locate(text))
		}
	}
	if refused := refusal(err); refused != nil {
		return refused
	}
	return fmt.Errorf("luatx: not committed: %w", err)
}

// fail gives every recorded command the transaction's error.
func fail(cmds []redis.Cmder, err error) {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
}

// reading is a look at the server's clock, and the local (monotonic) time it was taken at.
type reading struct{ server, local time.Time }

// drift is how far off the server's clock may be before it is read anew.
const drift = 100 * time.Millisecond

func (t *Transactor) observe(server time.Time) {
	now := time.Now()
	if d := server.Sub(t.serverTime(now)); d < -drift || d > drift || t.clock.Load() == nil {
		t.clock.Store(&reading{server, now})
	}
}

// serverTime is what the server's clock says at a local time, as far as is known.
func (t *Transactor) serverTime(local time.Time) time.Time {
	if r := t.clock.Load(); r != nil {
		return r.server.Add(local.Sub(r.local))
	}
	return local
}
