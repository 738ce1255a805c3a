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

	"github.com/luatx/luatx/internal/script"
)

const (
	// slack is added to the time by which a commit must arrive: half a round trip, and clocks of masters that
	// are not quite one.
	slack = time.Second
	// resolveTimeout bounds the question what became of a commit whose reply was lost.
	resolveTimeout = 5 * time.Second
)

// A committed transaction, as far as its caller is told.
type committed struct {
	Result
	acked bool // the input, in the same script
}

// prepared is a transaction that is ready to be sent, and what became of it.
type prepared struct {
	script.Sending
	tx       *Tx
	cmds     []redis.Cmder
	inline   Inline // nil: nothing to tell a relay
	reserved bool
	err      error      // nil: it is in, as Outcome says
	began    *time.Time // where there is an Observer; a pointer keeps what there is without one small

	few struct { // where the lists of Sending.Tx begin
		events   [1]script.Event
		commands [4]script.Command
		keys     [4]string
	}
}

// commit sends a transaction and tells what became of it.
func (t *Transactor) commit(ctx context.Context, tx *Tx, input script.Input) (committed, error) {
	p, err := t.prepare(ctx, tx, input)
	if err != nil {
		return committed{}, err
	}
	if p == nil {
		return committed{Result: t.nothing()}, nil
	}
	if g, ok := ctx.Value(gatheringKey{}).(*Gathering); ok {
		g.join(p)
	} else {
		t.send(ctx, []*prepared{p})
	}
	return t.finish(ctx, p)
}

// prepare closes a transaction and makes it ready to be sent; nil where there is nothing to commit, and nothing to
// remember.
func (t *Transactor) prepare(ctx context.Context, tx *Tx, input script.Input) (*prepared, error) {
	tx.close()
	p := &tx.prepared
	p.tx, p.Shard, p.Tx.Input = tx, tx.shard, input
	if t.cfg.Observer.Committed != nil {
		now := time.Now()
		p.began = &now
	}
	err := tx.prepare(p)
	if err == nil && !tx.claimed && len(p.cmds) == 0 && len(p.Tx.Events) == 0 {
		return nil, tx.verify(ctx) // though its function has decided on what it read
	}
	if err == nil {
		err = t.ensureChecked(ctx, tx.shard)
	}
	if err != nil {
		p.err = err
		_, err := t.finish(ctx, p)
		return nil, err
	}
	return p, nil
}

// finish tells the recorded commands, the Observer and the caller what became of a transaction.
func (t *Transactor) finish(ctx context.Context, p *prepared) (committed, error) {
	if t.cfg.Observer.Committed != nil {
		defer t.observed(ctx, p)
	}
	if p.err != nil {
		fail(p.cmds, p.err)
		return committed{}, p.err
	}
	out := &p.Outcome
	if out.Woken && (p.inline == nil || p.turnedAway()) {
		t.WakeRelays(p.tx.shard.Slot)
	}
	if len(p.cmds) > 0 {
		t.fill(ran(p.cmds, p.Tx.Order), out)
	}
	return committed{Result: Result{Outcome: outcomes[out.State], Replicated: p.Replicated}, acked: out.Acked}, nil
}

// tell tells the inline relay what became of a transaction.
func (p *prepared) tell() {
	if p.inline == nil || p.err != nil && !p.reserved {
		return
	}
	var events []Event
	if p.err == nil && (p.Outcome.State == script.Committed || p.Outcome.Same) {
		events = p.events()
	}
	p.inline.Committed(p.tx.shard.Slot, events, p.reserved)
}

// events are those of a transaction that is committed.
func (p *prepared) events() []Event {
	all := make([]Event, 0, len(p.Tx.Events)+len(p.Outcome.Emitted))
	for _, list := range [...][]script.Event{p.Tx.Events, p.Outcome.Emitted} {
		for _, event := range list {
			all = append(all, Event(event))
		}
	}
	return all
}

var outcomes = map[script.State]Outcome{
	script.Committed: Committed, script.Replayed: Replayed, script.Duplicate: Duplicate,
}

// fill gives the recorded commands their replies, or the first commit's where it has kept them.
func (t *Transactor) fill(cmds []redis.Cmder, out *script.Outcome) {
	var err error
	switch {
	case out.State == script.Committed:
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
func (t *Transactor) reserve(tx *script.Tx) (Inline, bool) {
	attached, calls := t.inline.Load(), tx.Calls()
	if attached == nil || !calls && len(tx.Events) == 0 {
		return nil, false
	}
	if !calls && !slices.ContainsFunc(tx.Events, func(e script.Event) bool { return e.Plain() }) {
		return *attached, false
	}
	lease, ok := (*attached).Reserve()
	if ok {
		tx.Delay = lease
	}
	return *attached, ok
}

// turnedAway reports whether the inline relay had no slot: what would be published at once may wait there.
func (p *prepared) turnedAway() bool {
	return !p.reserved && slices.ContainsFunc(p.Tx.Events, func(e script.Event) bool { return e.Plain() })
}

// send commits transactions, each under one token after another, until for each there is an answer that holds, which
// the relay is told of at once, so that it publishes together what was committed together. The tail goes out once,
// behind them.
func (t *Transactor) send(ctx context.Context, batch []*prepared, tail ...redis.Cmder) {
	until := time.Now().Add(t.cfg.CommitTimeout)
	patience := until
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until, patience = deadline, time.Time{} // his context says when
	}
	for _, p := range batch {
		p.inline, p.reserved = t.reserve(&p.Tx)
	}
	for open := batch; len(open) > 0; {
		var few [4]*script.Sending
		// In the server's time, a request sent now is too late after its caller has given up.
		sendings, notAfter := few[:0], t.serverTime(until).Add(slack)
		for _, p := range open {
			p.Tx.Token, p.Tx.NotAfter = p.tx.delivery.token(), notAfter
			sendings = append(sendings, &p.Sending)
		}
		t.scripts.Send(ctx, patience, sendings, tail...)
		tail = nil
		open = t.judge(ctx, until, open)
	}
	for _, p := range batch {
		if p.err == nil {
			p.err = outcomeError(&p.Outcome, p.tx)
		}
		p.tell()
	}
}

// judge decides which answers hold, asks what became of the transactions without one, and returns those that are
// to be sent again.
func (t *Transactor) judge(ctx context.Context, until time.Time, batch []*prepared) []*prepared {
	var again, unclear []*prepared
	var now time.Time // those that shared a script share the time
	for _, p := range batch {
		switch verdict := p.verdict(); {
		case verdict == unknown:
			unclear = append(unclear, p)
		case verdict == late && ctx.Err() == nil && time.Now().Before(until):
			again = append(again, p)
		}
		if p.Err == nil && !p.Now.Equal(now) {
			now = p.Now
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

func (t *Transactor) resolveAll(ctx context.Context, unclear []*prepared) {
	var wg sync.WaitGroup
	for _, p := range unclear[1:] {
		wg.Go(func() { t.resolve(ctx, p) })
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

func (p *prepared) verdict() verdict {
	switch {
	case p.Err != nil && p.Unanswered:
		p.err = p.Err
		return unknown
	case p.Err != nil:
		p.err = p.tx.t.serverError(p.Err)
		return holds
	}
	if p.Outcome.State == script.Expired {
		if p.Now.After(p.Tx.NotAfter) {
			return late
		}
		return holds
	}
	if !p.Unanswered || p.Outcome.State == script.Broken {
		return holds
	}
	if p.err = outcomeError(&p.Outcome, p.tx); p.err != nil {
		return unknown
	}
	return holds
}

// resolve finds out what became of a token, and makes sure that it stays so.
func (t *Transactor) resolve(ctx context.Context, p *prepared) {
	ctx, cancel := p.tx.lookup(ctx)
	defer cancel()
	cause := p.err
	state, text, _, err := t.scripts.Resolve(ctx, p.Shard, p.Tx.Digest, p.Tx.Token, p.Tx.NotAfter.Add(slack))
	switch {
	case err != nil:
		p.err = &UnknownError{newReceipt(p.tx, &p.Tx), fmt.Errorf("%w; asked what became of it: %w", cause, err)}
	case state == script.Tombstoned:
		p.err = fmt.Errorf("luatx: not committed: %w", cause)
	default:
		p.Outcome, p.Replicated, p.err = script.Outcome{State: state, Text: text}, false, nil
	}
}

// serverError translates an error that came instead of an outcome.
func (t *Transactor) serverError(err error) error {
	if ended, ok := errors.AsType[*script.ServerError](err); ok {
		if text := ended.Err.Error(); strings.Contains(text, "rror compiling script") {
			return fmt.Errorf("luatx: script %s: %s", ended.Script, t.scripts.Locate(text))
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
