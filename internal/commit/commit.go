// Package commit sends transactions: one type carries the request and the outcome, one file lays its arguments out for the
// script, one reads the reply.
package commit

import (
	"slices"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/shard"
)

// Ack says what a commit does about the entry that its input was read from.
type Ack int

// The values of Ack.
const (
	AckNone  Ack = 0 // the input has no entry in this slot
	AckFence Ack = 1 // refuse the commit unless the consumer still owns the entry
	AckFused Ack = 3 // fence, and acknowledge the entry in the commit
)

// Input is the entry that a transaction's message was read from.
type Input struct {
	Ack                            Ack
	Stream, Group, Consumer, Entry string
	// Strict asks XPENDING who owns the entry, even if no takeover is noted. A transaction whose id is in no inbox needs it:
	// nothing else keeps a second commit of the entry from a second effect.
	Strict bool
}

// Command is a recorded command: its head, a string that is made an argument once for all, and its arguments, the
// name first.
type Command struct {
	Head string
	Args []any
}

// Guard is a read that must still have its reply when the transaction commits.
type Guard struct {
	Order  byte // of the reply, as internal/lua/_guard.lua says
	Args   []any
	Digest string
	Size   int // what the reply counts, as internal/lua/_guard.lua says
}

// Commit is one transaction: the request, and what became of it.
type Commit struct {
	Shard    shard.Shard
	Digest   string    // of the id, 16 bytes
	Token    string    // 10 bytes: the base of the delivery or call, and the run
	NotAfter time.Time // server time
	Input    Input
	Delay    time.Duration // until the cold relay may take its events
	Events   []shard.Event
	Commands []Command
	Guards   []Guard
	Order    []int    // where each of Commands was recorded; nil: where it stands
	Keys     []string // every key of the commands and guards
	Keep     bool     // the replies, for a retry

	Outcome    Outcome
	Now        time.Time // the server's, with the outcome
	Unanswered bool      // a copy of an earlier request may still arrive
	Replicated bool      // as far as Constants.Durability asks
	Tries      uint16    // round trips
	Batch      uint16    // how many transactions shared the last script
	Err        error     // there is no outcome

	call     eval.Call
	general  *eval.Script // which takes every plan
	plans    *plans
	plan     *plan
	compiled *compiled // nil: the general script takes it
	notAfter int64     // in ms, as it is sent
	args     int       // how many arguments come behind the head and the digests
}

// Calls reports whether the transaction calls procedures, which may emit events.
func (c *Commit) Calls() bool {
	return slices.ContainsFunc(c.Commands, func(command Command) bool { return command.Class() == lua.Procedure })
}

// special reports whether events may come that are not plain.
func (c *Commit) special() bool { return !c.plainEvents() || c.Calls() }

func (c *Commit) plainEvents() bool {
	for i := range c.Events {
		if !c.Events[i].Plain() {
			return false
		}
	}
	return true
}

// Class is the first letter of the head.
func (c Command) Class() byte {
	return c.Head[0]
}

// State is what became of a transaction.
type State string

// The states that the scripts answer.
const (
	Committed  State = "committed"
	Replayed   State = "replayed"   // committed before, by this delivery or call
	Duplicate  State = "duplicate"  // committed before, by another
	Expired    State = "expired"    // arrived too late, or after its tombstone
	Fenced     State = "fenced"     // another consumer owns the entry
	Full       State = "full"       // the outbox has no room: Text says of what
	Conflict   State = "conflict"   // what a guard read has changed
	Aborted    State = "aborted"    // a procedure ended the transaction; everything was undone
	Rejected   State = "rejected"   // a procedure ended the transaction for good; everything was undone
	Failed     State = "failed"     // a command failed; everything was undone
	Refused    State = "refused"    // the server takes no writes; nothing was done
	Broken     State = "broken"     // a command failed, and so did the undo
	Identity   State = "identity"   // the shard belongs to another layout or keyspace
	Absent     State = "absent"     // resolve: not committed
	Tombstoned State = "tombstoned" // resolve: not committed, and never will be
)

// Outcome is the answer to one transaction.
type Outcome struct {
	State   State
	Acked   bool          // the entry was acknowledged in the script
	Woken   bool          // relays are to be woken: something came that no relay has, and nobody has told them of the shard yet
	Same    bool          // replayed: by this very token, so that its events are these
	Replies []any         // of the commands, where committed, in the order they ran
	Emitted []shard.Event // by procedures, where committed
	Kept    string        // the replies of the commit that was, in RESP and that order, where it kept them
	Index   int           // failed: the command that failed, from 1; an event: negative; 0: the script itself
	Text    string
}
