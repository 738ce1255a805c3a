// Package commit sends transactions. One type holds the request and the outcome, one file encodes its arguments for the script,
// and one decodes the reply.
package commit

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/shard"
)

// Ack determines what a commit does about the entry from which its input was read.
type Ack int

// The values of Ack.
const (
	AckNone  Ack = 0 // the input has no entry in this slot
	AckFence Ack = 1 // reject the commit unless the consumer still owns the entry
	AckFused Ack = 3 // fence, and acknowledge the entry in the commit
)

// Input is the entry from which a transaction's message was read.
type Input struct {
	Ack                            Ack
	Stream, Group, Consumer, Entry string
	// Strict asks XPENDING who owns the entry, even if no takeover is noted. A transaction without an id in an inbox needs it,
	// because nothing else prevents a second commit of the entry from taking effect.
	Strict bool
}

// Position is the position that a transaction moves instead of marking an id; see internal/lua/_position.lua.
type Position struct {
	Field  string // scope, source and partition
	Offset string
	After  string // the offset that must be committed; empty: none
	Owner  string // the generation and the epoch, as OwnerOf writes them
}

// OwnerOf returns the owner of a position.
func OwnerOf(generation int64, epoch string) string {
	return " " + strconv.FormatInt(generation, 10) + " " + epoch
}

// epoch returns the epoch in the owner.
func (p *Position) epoch() string { return strings.SplitN(p.Owner, " ", 3)[2] }

// Command is a recorded command: its head, a string that is formatted once, and its arguments, beginning with the name.
type Command struct {
	Head string
	Args []any
}

// Guard is a read whose reply must be unchanged when the transaction commits.
type Guard struct {
	Order  byte // of the reply, see internal/lua/_guard.lua
	Args   []any
	Digest string
	Size   int // of the reply, see internal/lua/_guard.lua
}

// Commit is one transaction: the request and its outcome.
type Commit struct {
	Shard    shard.Shard
	Digest   string    // of the id, 16 bytes
	Token    string    // 10 bytes: the base of the delivery or call, and the run
	NotAfter time.Time // server time
	Position *Position // nil: the digest is marked
	Input    Input
	Delay    time.Duration // until a cold relay may take its events
	Events   []shard.Event
	Commands []Command
	Guards   []Guard
	Order    []int    // the recorded position of each of Commands; nil: unchanged
	Keys     []string // every key of the commands and guards
	Keep     bool     // stores the replies for a retry

	Outcome    Outcome
	Now        time.Time // the server's time of the outcome
	Unanswered bool      // a copy of an earlier request may still arrive
	Replicated bool      // as Constants.Durability requires
	Tries      uint16    // number of round trips
	Batch      uint16    // number of transactions that shared the last script
	Err        error     // set if there is no outcome

	call     eval.Call
	general  *eval.Script // the script for every plan
	plans    *plans
	plan     *plan
	compiled *compiled // nil: the general script is used
	notAfter int64     // in ms, as it is sent
	args     int       // number of arguments behind the head and the digests
	staged   bool      // an event has its body in a key of its own; see stage
}

// Calls reports whether the transaction calls procedures, which may emit events.
func (c *Commit) Calls() bool {
	return slices.ContainsFunc(c.Commands, func(command Command) bool { return command.Class() == lua.Procedure })
}

// special reports whether the transaction may have events that are not plain.
func (c *Commit) special() bool { return !c.plainEvents() || c.Calls() }

func (c *Commit) plainEvents() bool {
	for i := range c.Events {
		if !c.Events[i].Plain() {
			return false
		}
	}
	return true
}

// Class returns the first letter of the head.
func (c Command) Class() byte {
	return c.Head[0]
}

// State is the outcome of a transaction as a word.
type State string

// The states that the scripts return.
const (
	Committed  State = "committed"
	Replayed   State = "replayed"   // committed before, by this delivery or call
	Duplicate  State = "duplicate"  // committed before, by another
	Expired    State = "expired"    // arrived after its deadline, or after its tombstone
	Fenced     State = "fenced"     // another consumer owns the entry
	Early      State = "early"      // the message in front is not committed; Text is the offset that is
	Epoch      State = "epoch"      // the source counts anew; Text is the epoch that is stored
	Full       State = "full"       // the outbox is full; Text names the limit
	Conflict   State = "conflict"   // the reply to a guard has changed
	Aborted    State = "aborted"    // a procedure ended the transaction; everything was undone
	Rejected   State = "rejected"   // a procedure ended the transaction for good; everything was undone
	Failed     State = "failed"     // a command failed; everything was undone
	Refused    State = "refused"    // the server accepts no writes; nothing was done
	Broken     State = "broken"     // a command failed, and so did the undo
	Identity   State = "identity"   // the shard belongs to another layout or keyspace
	Absent     State = "absent"     // resolve: not committed
	Tombstoned State = "tombstoned" // resolve: not committed, and never will be
)

// Outcome is the result of one transaction.
type Outcome struct {
	State   State
	Acked   bool          // the entry was acknowledged in the script
	Woken   bool          // other relays must be woken: there are new events that no relay has, and no relay was notified of the shard
	Same    bool          // replayed by the same token, so that its events are these
	Replies []any         // of the commands, if committed, in the order they ran
	Emitted []shard.Event // by procedures, if committed
	Kept    string        // the stored replies of the earlier commit, in RESP and in that order
	Index   int           // failed: the command that failed, from 1; an event: negative; 0: the script itself
	Text    string
}
