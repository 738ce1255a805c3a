package luatx

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/message"
)

// outcomeError returns the error for the reply of a script, or nil if the effect is committed.
func outcomeError(out *commit.Outcome, tx *Tx) error {
	switch out.State {
	case commit.Committed, commit.Replayed, commit.Duplicate:
		return nil
	case commit.Expired, commit.Tombstoned, commit.Absent:
		return ErrExpired
	case commit.Fenced:
		return ErrFenced
	case commit.Early, commit.Epoch:
		return tx.orderError(out)
	case commit.Conflict:
		return ErrConflict
	case commit.Aborted, commit.Rejected:
		return tx.abortError(out)
	case commit.Full:
		return tx.t.outboxFull(tx.home.Slot, out.Text)
	case commit.Failed:
		return tx.commandError(out)
	case commit.Broken:
		return &RollbackError{out.Text}
	case commit.Refused:
		return refused(out.Text, nil)
	case commit.Identity:
		return fmt.Errorf("%w: it was written with %q, this is %q; use the configuration of the shard, or another namespace",
			ErrKeyspace, out.Text, tx.t.identity)
	}
	return fmt.Errorf("luatx: unexpected outcome %q", out.State)
}

// outboxFull returns the error of a commit that reached a limit of the outbox. The script names the limit in what.
func (t *Transactor) outboxFull(slot int, what string) error {
	limits := map[string]int{
		"events": t.cfg.OutboxCapacity, "bytes": t.cfg.OutboxBytes, "parked": t.cfg.ParkedCapacity,
		"parked bytes": t.cfg.ParkedBytes, "lane": t.cfg.LaneCapacity,
	}
	return &OutboxFullError{What: what, Limit: limits[what], Slot: slot}
}

// orderError returns the error of a transaction whose position was not moved.
func (tx *Tx) orderError(out *commit.Outcome) error {
	claim := link.ClaimOf(tx)
	if claim == nil {
		claim = &link.Claim{} // of a receipt
	}
	if out.State == commit.Early {
		return &message.EarlyError{After: claim.Position.After, Committed: out.Text}
	}
	return &message.EpochError{Source: claim.At.Source, Partition: claim.At.Partition, Stored: out.Text, Found: claim.At.Epoch}
}

// commandError returns the error for the command on which a script failed.
func (tx *Tx) commandError(out *commit.Outcome) error {
	switch {
	case out.Index <= 0 && denied(out.Text): // a command that luatx itself runs
		return refused(out.Text, nil)
	case out.Index < 0:
		return &CommandError{Index: out.Index, Text: out.Text}
	case out.Index == 0:
		return fmt.Errorf("luatx: the commit script failed and was undone: %s", out.Text)
	}
	failed := &CommandError{Index: out.Index - 1, Text: tx.t.commits.Locate(out.Text)}
	if denied(out.Text) {
		failed.Remedy = remedies["NOPERM"]
	}
	if cmds := tx.recorder.Cmds(); failed.Index >= 0 && failed.Index < len(cmds) {
		failed.Command = cmds[failed.Index].Name()
	}
	return failed
}

func (tx *Tx) abortError(out *commit.Outcome) error {
	err := &AbortError{Index: out.Index - 1, Reason: out.Text, Permanent: out.State == commit.Rejected}
	if cmds := tx.recorder.Cmds(); err.Index >= 0 && err.Index < len(cmds) {
		err.Procedure, _, _, _ = splitCall(cmds[err.Index].Args())
	}
	return err
}

// serverError translates an error that the server returned instead of an outcome.
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

var outcomes = map[commit.State]Outcome{
	commit.Committed: Committed, commit.Replayed: Replayed, commit.Duplicate: Duplicate,
}

// fill sets the replies of the recorded commands, or those of the first commit if it kept them.
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

// fail sets the transaction's error on every recorded command.
func fail(cmds []redis.Cmder, err error) {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
}

// Outcome states whether the request that committed a transaction was this one, an earlier one, or one of another
// call or delivery.
type Outcome int

// The outcomes. With an error, the outcome is zero: nothing was committed.
const (
	// Committed means that this request committed.
	Committed Outcome = iota + 1
	// Replayed means that an earlier request of the same call or delivery had committed. The effect is there once.
	Replayed
	// Duplicate means that another call or delivery with the same id had committed. The effect is there once, and comes from that
	// one.
	Duplicate
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	if o < Committed || o > Duplicate {
		return "not committed"
	}
	return [...]string{"committed", "replayed", "duplicate"}[o-1]
}

// Result is the result of a successful transaction.
type Result struct {
	// Outcome states whether this request committed, or an earlier one had.
	Outcome Outcome
	// Replicated reports whether the effect has reached what Config.Durability requires. It is false if Durability requires
	// nothing, or if that is not known.
	Replicated bool
}
