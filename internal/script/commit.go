package script

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ack says what a commit does about the entry that its input was read from.
type Ack int

// The values of Ack.
const (
	AckNone  Ack = iota // the input has no entry in this slot
	AckFence            // refuse the commit unless the consumer still owns the entry
	AckFused            // fence, and acknowledge the entry in the commit
)

// Input is the entry that a transaction's message was read from.
type Input struct {
	Ack                            Ack
	Stream, Group, Consumer, Entry string
}

// Command is a recorded command: its head, a string that is made an argument once for all, and its arguments, the
// name first.
type Command struct {
	Head string
	Args []any
}

// Guard is a read that must still have its reply when the transaction commits.
type Guard struct {
	Order  byte // of the reply, as lua/_guard.lua says
	Args   []any
	Digest string
	Size   int // what the reply counts, as lua/_guard.lua says
}

// Tx is one transaction, ready to be sent.
type Tx struct {
	Digest   string    // of the id, 16 bytes
	Token    string    // 10 bytes: the base of the delivery or call, and the run
	NotAfter time.Time // server time
	Input    Input
	Delay    time.Duration // until the cold relay may take its events
	Events   []Event
	Commands []Command
	Guards   []Guard
	Order    []int    // where each of Commands was recorded; nil: where it stands
	Keys     []string // every key of the commands and guards
	Keep     bool     // the replies, for a retry

	notAfter int64 // in ms, as it is sent
}

// Calls reports whether the transaction calls procedures, which may emit events.
func (tx *Tx) Calls() bool {
	return slices.ContainsFunc(tx.Commands, func(c Command) bool { return c.Class() == 'p' })
}

// special reports whether events may come that are not plain.
func (tx *Tx) special() bool {
	return !tx.plainEvents() || tx.Calls()
}

func (tx *Tx) plainEvents() bool {
	for i := range tx.Events {
		if !tx.Events[i].Plain() {
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
	Acked   bool    // the entry was acknowledged in the script
	Woken   bool    // nothing was due in the shard before the script, and something came that no relay has yet
	Same    bool    // replayed: by this very token, so that its events are these
	Replies []any   // of the commands, where committed, in the order they ran
	Emitted []Event // by procedures, where committed
	Kept    string  // the replies of the commit that was, in RESP and that order, where it kept them
	Index   int     // failed: the command that failed, from 1; an event: negative; 0: the script itself
	Text    string
}

// arguments is how many append appends.
func (tx *Tx) arguments() int {
	n := tx.header() + 2*len(tx.Events)
	if !tx.plainEvents() {
		n += len(tx.Events)
	}
	for _, guard := range tx.Guards {
		n += 2 + len(guard.Args)
	}
	for _, command := range tx.Commands {
		n += command.arguments()
	}
	return n
}

// arguments is how many a command takes, with the positions that it may bring.
func (c Command) arguments() int {
	if c.Class() == 'm' {
		return len(c.Args) + 1
	}
	return len(c.Args)
}

// header is how many arguments come before the caller's.
func (tx *Tx) header() int {
	if tx.Input.Ack == AckNone {
		return 3
	}
	return 4
}

// input is what the transaction acknowledges, or only owns; nil: nothing.
func (tx *Tx) input() *Input {
	if tx.Input.Ack == AckNone {
		return nil
	}
	return &tx.Input
}

// append lays the transaction out as lua/commit.lua reads it, with its plan. The header's texts go by pointer,
// which costs no memory of their own.
func (tx *Tx) append(args []any, plan any) []any {
	args = append(args, plan, &tx.Token, &tx.notAfter)
	if tx.Input.Ack != AckNone {
		args = append(args, &tx.Input.Entry)
	}
	for _, guard := range tx.Guards {
		args = append(args, guard.head(), guard.Digest)
		args = append(args, guard.Args...)
	}
	heads := !tx.plainEvents()
	for i := range tx.Events {
		args = tx.Events[i].append(args, heads)
	}
	for _, command := range tx.Commands {
		if command.Class() == 'm' {
			_, positions, _ := strings.Cut(command.Head, " ")
			args = append(args, positions)
		}
		args = append(args, command.Args...)
	}
	return args
}

func (g Guard) head() string { return string(g.Order) + strconv.Itoa(len(g.Args)) }

// outcome reads the answer to a transaction of so many commands.
func outcome(fields []any, commands int) (Outcome, error) {
	if len(fields) == 0 {
		return Outcome{}, malformed("commit", fields)
	}
	out := Outcome{State: State(word(fields[0]))}
	rest := fields[1:]
	switch out.State {
	case Committed:
		if len(rest) < 1+commands || (len(rest)-1-commands)%3 != 0 {
			return out, malformed("commit", fields)
		}
		flags := number(rest[0])
		out.Acked, out.Woken, out.Replies = flags&1 != 0, flags&2 != 0, rest[1:1+commands]
		for emitted := rest[1+commands:]; len(emitted) > 0; emitted = emitted[3:] {
			out.Emitted = append(out.Emitted, readEvent(word(emitted[0]), word(emitted[1]), word(emitted[2])))
		}
	case Replayed, Duplicate:
		out.Acked = len(rest) > 0 && rest[0] == int64(1)
		out.Same = len(rest) > 1 && rest[1] == int64(1)
		if len(rest) > 2 {
			kept, _ := rest[2].(string)
			if number, frames, _ := strings.Cut(kept, ":"); number == strconv.Itoa(commands) {
				out.Kept = frames
			}
		}
	case Failed, Aborted, Rejected:
		if len(rest) < 2 {
			return out, malformed("commit", fields)
		}
		index, _ := rest[0].(int64)
		out.Index, out.Text = int(index), fmt.Sprint(rest[1])
	case Refused, Broken, Identity, Full:
		if len(rest) > 0 {
			out.Text = fmt.Sprint(rest[0])
		}
	case Expired, Fenced, Conflict:
	default:
		return out, malformed("commit", fields)
	}
	return out, nil
}

// Resolve returns what became of a digest, or of a token where it is not empty, and the server's time. With a tombstone it makes sure
// that no copy of the token's commit takes effect up to that server time.
func (s *Set) Resolve(ctx context.Context, shard Shard, digest, token string, tombstone time.Time) (state State, text string, now time.Time, err error) {
	until := ""
	if !tombstone.IsZero() {
		until = millis(tombstone)
	}
	keys := shard.keys(keyVoid, keyInboxA, keyInboxB, keyBroken)
	reply, err := s.eval(ctx, &s.resolve, keys, []any{digest, token, until})
	if err != nil {
		return "", "", time.Time{}, err
	}
	now, rest, err := timed(reply)
	if err != nil {
		return "", "", time.Time{}, err
	}
	word, _ := rest[0].(string)
	if len(rest) > 1 {
		text, _ = rest[1].(string)
	}
	return State(word), text, now, nil
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// timed takes the server's time off the front of a reply.
func timed(reply any) (time.Time, []any, error) {
	rows, _ := reply.([]any)
	if len(rows) < 2 {
		return time.Time{}, nil, malformed("any", reply)
	}
	text, _ := rows[0].(string)
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, nil, malformed("any", reply)
	}
	return time.UnixMilli(ms), rows[1:], nil
}

func malformed(script string, reply any) error {
	return fmt.Errorf("script %s: unexpected reply %.200v", script, reply)
}
