// Package commit sends transactions. The type Commit holds the request and the outcome. encode.go encodes its arguments
// for the script, and decode.go decodes the reply.
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

// Ack determines how a commit handles the entry from which its input was read.
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
	// Strict makes the commit ask XPENDING for the owner of the entry, even if no takeover is noted. A transaction
	// without an id in an inbox needs this, because otherwise a second commit of the entry would also take effect.
	Strict bool
}

// Position is the position that a transaction moves instead of marking an id; see internal/lua/_position.lua.
type Position struct {
	Field  string // scope, source and partition
	Offset string
	After  string // the offset that must be committed; empty: none
	Owner  string // the generation and the epoch, in the format of OwnerOf
}

// OwnerOf returns the owner of a position.
func OwnerOf(generation int64, epoch string) string {
	return " " + strconv.FormatInt(generation, 10) + " " + epoch
}

// epoch returns the epoch in the owner.
func (p *Position) epoch() string { return strings.SplitN(p.Owner, " ", 3)[2] }

// Command is a recorded command: its head, which is a string that is formatted once, and its arguments, which begin
// with the name.
type Command struct {
	Head string
	Args []any
}

// Guard is a read whose reply must be unchanged when the transaction commits.
type Guard struct {
	Order  byte // the order of the reply; see internal/lua/_guard.lua
	Args   []any
	Digest string
	Size   int // the size of the reply; see internal/lua/_guard.lua
}

// Commit is one transaction: the request and its outcome.
type Commit struct {
	Shard    shard.Shard
	Digest   string    // of the id, 16 bytes
	Token    string    // 10 bytes: the base of the delivery or call, and the run
	NotAfter time.Time // server time
	Position *Position // the position that the commit moves; nil: the commit marks the digest
	Input    Input
	Delay    time.Duration // the time until cold relays may claim the events
	Events   []shard.Event
	Commands []Command
	Guards   []Guard
	Order    []int    // the recorded position of each of Commands; nil: unchanged
	Keys     []string // every key of the commands and guards
	Keep     bool     // stores the replies for a repeated call

	Outcome    Outcome
	Now        time.Time // the server's time of the outcome
	Unanswered bool      // a copy of an earlier request may still arrive
	Replicated bool      // reports whether the effect has reached everything that Constants.Durability requires
	Tries      uint16    // number of round trips
	Batch      uint16    // number of transactions that shared the last script
	Err        error     // set if there is no outcome

	call     eval.Call
	general  *eval.Script // the script for every plan
	plans    *plans
	plan     *plan
	compiled *compiled // nil: the general script is used
	notAfter int64     // in ms, as it is sent
	args     int       // number of arguments after the head and the digests
	until    string    // the deadline and the consumer, which are one argument of a compiled script
	room     []any     // memory for the arguments of a compiled script
	staged   bool      // the body of an event has a separate key; see stage
}

// maxRoom is the maximum number of arguments whose memory a commit leaves to the next one.
const maxRoom = 256

// Reset makes the commit ready for another transaction. No request may use it any more.
func (c *Commit) Reset() {
	room := c.room
	if cap(room) > maxRoom {
		room = nil
	}
	clear(room)
	*c = Commit{room: room[:0]}
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
	Duplicate  State = "duplicate"  // committed before, by another delivery or call
	Expired    State = "expired"    // arrived after its deadline, or after its tombstone
	Fenced     State = "fenced"     // another consumer owns the entry
	Early      State = "early"      // the preceding message is not committed; Text is the last committed offset
	Epoch      State = "epoch"      // the source has a new epoch; Text is the stored epoch
	Full       State = "full"       // the outbox is full; Text names the limit
	Conflict   State = "conflict"   // the reply to a guard has changed
	Aborted    State = "aborted"    // a procedure ended the transaction; everything was undone
	Rejected   State = "rejected"   // a procedure rejected the transaction permanently; everything was undone
	Failed     State = "failed"     // a command failed; everything was undone
	Refused    State = "refused"    // the server accepts no writes; nothing was done
	Broken     State = "broken"     // a command failed, and the rollback failed too
	Identity   State = "identity"   // the shard belongs to another layout or keyspace
	Absent     State = "absent"     // resolve: not committed
	Tombstoned State = "tombstoned" // resolve: not committed, and never will be
)

// Outcome is the result of one transaction.
type Outcome struct {
	State   State
	Acked   bool          // the script acknowledged the entry
	Woken   bool          // other relays must be woken: there are new events that no relay has, and no relay was notified of the shard
	Same    bool          // replayed by the same token, so that the events are those of this transaction
	Replies []any         // replies of the commands if the transaction is committed, in the order in which they ran
	Emitted []shard.Event // events that procedures emitted, if the transaction is committed
	Kept    string        // the stored replies of the earlier commit, in RESP and in that order
	Index   int           // failed: the number of the failed command, from 1; negative: an event; 0: the script itself
	Text    string
}
