package luatx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// commit sends a transaction and tells what became of it. The bool says that the input was acknowledged in it.
func (t *Transactor) commit(ctx context.Context, tx *Tx, input script.Input) (Outcome, bool, error) {
	tx.close()
	prepared, cmds, err := tx.prepare()
	if err != nil {
		fail(cmds, err)
		return 0, false, err
	}
	if !tx.claimed && len(cmds) == 0 && len(tx.events) == 0 {
		if err := tx.verify(ctx); err != nil { // though its function has decided on what it read
			return 0, false, err
		}
		return Committed, false, nil // nothing to commit, nothing to remember
	}
	prepared.Input = input
	if err := t.ensureChecked(ctx); err != nil {
		fail(cmds, err)
		return 0, false, err
	}

	inline, reserved := t.reserve(&prepared)
	out, err := t.send(ctx, tx, &prepared)
	if err == nil {
		err = outcomeError(out, tx)
	}
	if inline != nil && (reserved || err == nil) {
		var events []Event
		if err == nil && (out.State == script.Committed || out.Same) {
			events = tx.events
			for _, event := range out.Emitted {
				events = append(slices.Clip(events), Event(event))
			}
		}
		inline.Committed(tx.shard.Slot, events, reserved)
	}
	if err != nil {
		fail(cmds, err)
		return 0, false, err
	}
	if len(cmds) > 0 {
		t.fill(cmds, out)
	}
	return outcomes[out.State], out.Acked, nil
}

var outcomes = map[script.State]Outcome{
	script.Committed: Committed, script.Replayed: Replayed, script.Duplicate: Duplicate,
}

// fill gives the recorded commands their replies, or the first commit's where it has kept them.
func (t *Transactor) fill(cmds []redis.Cmder, out script.Outcome) {
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
func (t *Transactor) reserve(prepared *script.Tx) (Inline, bool) {
	attached := t.inline.Load()
	if attached == nil || !prepared.MayEmit() {
		return nil, false
	}
	lease, ok := (*attached).Reserve()
	if ok {
		prepared.Delay = lease
	}
	return *attached, ok
}

// send commits under one token after another until there is an answer that holds.
func (t *Transactor) send(ctx context.Context, tx *Tx, prepared *script.Tx) (script.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.CommitTimeout)
	defer cancel()
	for {
		prepared.Token = tx.delivery.token()
		prepared.NotAfter = t.notAfter(ctx)
		outcomes, now, unanswered, err := t.scripts.Commit(ctx, tx.shard, []script.Tx{*prepared})
		if err != nil {
			if unanswered {
				return t.resolve(ctx, tx, prepared, err)
			}
			return script.Outcome{}, t.serverError(err)
		}
		out := outcomes[0]
		late := now.After(prepared.NotAfter)
		t.observe(now)
		switch {
		case out.State == script.Expired && late && ctx.Err() == nil:
			continue // the clock was off; no copy of this token can take effect any more
		case unanswered && outcomeError(out, tx) != nil && out.State != script.Broken && out.State != script.Expired:
			// Not committed by this request; an earlier one that was not answered may still be under way.
			return t.resolve(ctx, tx, prepared, outcomeError(out, tx))
		}
		return out, nil
	}
}

// resolve finds out what became of a token, and makes sure that it stays so.
func (t *Transactor) resolve(ctx context.Context, tx *Tx, prepared *script.Tx, cause error) (script.Outcome, error) {
	ctx, cancel := tx.lookup(ctx)
	defer cancel()
	state, text, err := t.scripts.Resolve(ctx, tx.shard, prepared.Digest, prepared.Token, prepared.NotAfter.Add(slack))
	switch {
	case err != nil:
		return script.Outcome{}, &UnknownError{newReceipt(tx, prepared), fmt.Errorf("%w; asked what became of it: %w", cause, err)}
	case state == script.Tombstoned:
		return script.Outcome{}, fmt.Errorf("luatx: not committed: %w", cause)
	}
	return script.Outcome{State: state, Text: text}, nil
}

// serverError translates an error that came instead of an outcome.
func (t *Transactor) serverError(err error) error {
	if refused, ok := errors.AsType[*script.ServerError](err); ok {
		if text := refused.Err.Error(); strings.Contains(text, "rror compiling script") {
			return fmt.Errorf("luatx: script %s: %s", refused.Script, t.scripts.Locate(text))
		}
		return &RefusedError{refused.Err.Error()}
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

func (t *Transactor) observe(server time.Time) {
	t.clock.Store(&reading{server, time.Now()})
}

// notAfter is when, in the server's time, a request sent now is too late: after its caller has given up.
func (t *Transactor) notAfter(ctx context.Context) time.Time {
	now := time.Now()
	if r := t.clock.Load(); r != nil {
		now = r.server.Add(time.Since(r.local))
	}
	left := t.cfg.CommitTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	return now.Add(left + slack)
}
