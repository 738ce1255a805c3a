package outbox

import (
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/message"
)

// State is the state of an event.
type State string

// The states. An event is in exactly one of them.
const (
	// Pending means that the event is due or scheduled, and no relay has leased it. Counts.Pending includes the leased events.
	Pending State = "pending"
	// Leased means that a relay has claimed the event.
	Leased State = "leased"
	// Waiting means that the event is behind others in its lane.
	Waiting State = "waiting"
	// Sent means that the event was published, and is remembered for a while.
	Sent State = "sent"
	// Parked means that the event used up its attempts, was rejected for good, or was erased. It stays until an operator acts.
	Parked State = "parked"
)

// Scheduled and Retrying are the pending events that wait for their time: those that have one and were never claimed, and those that
// relays have tried since they came or were re-armed. List takes them as states. The State of such an event is Pending.
const (
	Scheduled State = "scheduled"
	Retrying  State = "retrying"
)

// States lists the states that List takes.
func States() []State { return []State{Pending, Scheduled, Retrying, Leased, Waiting, Parked, Sent} }

// letters are the states as internal/lua/list.lua returns them.
var letters = map[byte]State{'p': Pending, 'l': Leased, 'w': Waiting, 's': Sent, 'k': Parked}

// Event is an event in the outbox with everything that is known about it.
type Event struct {
	Slot  int
	ID    string
	State State
	// At is a time of the server's clock: the next attempt of a Pending event, the end of the lease of a Leased one, the time at
	// which a Sent or Parked one was sent or parked. It is zero for a Waiting one.
	At time.Time
	// Scheduled means that the event has a time of its own, and that no relay has claimed it yet.
	Scheduled bool
	// Attempts is the number of attempts since the event was added or re-armed, including the current one.
	Attempts int
	// Lease is the id of the last claim, or empty if no relay has the event.
	Lease string
	// Key is the ordering key, which an event has while it is in a lane.
	Key string
	// Behind is the id of the first event of the lane, which this one waits behind. HoldsBack is the number of events that wait behind
	// this one.
	Behind    string
	HoldsBack int
	// Destination is where the event is published, as set in its body or by an operator.
	Destination string
	// Error is the text of the last failure and Class its class. For a parked event, they state why it was parked. Both are empty
	// if there was no failure.
	Error, Class string
	// History holds the last five failures, newest first. Re-arming keeps it.
	History []Failure
	// Message is the decoded body. It is nil if the body was not kept, was erased or cannot be decoded.
	Message *message.RawMessage
	// Body is the body as it was committed, or nil if there is none.
	Body []byte
	// Erased means that an operator has erased the body. The event cannot be re-armed.
	Erased bool

	position //nolint:unused // in a list by state; see link.ContinueAt

	route  string
	bare   bool   // there is no body
	digest string // of an erased body
}

// Failure is a failed attempt.
type Failure struct {
	At      time.Time // by the server's clock
	Attempt int
	// Class is the class of the failure, without blanks: the result of the error's method Class() string, or else refused,
	// exhausted, malformed, crashed, failed, erased, or operator. See docs/operations.md.
	Class string
	Text  string
}

func (e Event) last() Failure {
	if len(e.History) == 0 {
		return Failure{}
	}
	return e.History[0]
}

// event converts a row of a listing. It returns an error if the body cannot be decoded.
func event(slot int, row shard.Listed) (Event, error) {
	e := Event{
		Slot: slot, ID: row.ID, State: letters[row.State], At: row.At, Attempts: row.Attempts, Lease: row.Lease, Key: row.Key,
		Behind: row.Head, HoldsBack: row.Behind, Scheduled: row.Scheduled, Destination: row.Route, route: row.Route,
	}
	link.ContinueAt(&e, slot, row.Place)
	for _, f := range row.Failures {
		e.History = append(e.History, Failure(f))
	}
	e.Error, e.Class = e.last().Text, e.last().Class
	if !row.HasBody {
		e.bare, e.digest, e.Erased = true, string(row.Body), e.State == Parked
		return e, nil
	}
	if len(row.Body) == 0 {
		return e, nil
	}
	e.Body = row.Body
	msg, err := Decode(row.Body)
	if err != nil {
		return e, err
	}
	if e.Message = msg; e.Destination == "" {
		e.Destination = msg.Destination()
	}
	return e, nil
}

// historyLines formats failures as internal/lua/_errors.lua stores them.
func historyLines(list []Failure) string {
	lines := make([]string, len(list))
	blank := strings.NewReplacer("\r", " ", "\n", " ")
	for i, f := range list {
		class := strings.Join(strings.Fields(f.Class), "_")
		if class == "" {
			class = "-"
		}
		lines[i] = strconv.FormatInt(f.At.UnixMilli(), 10) + " " + strconv.Itoa(f.Attempt) + " " + class + " " + blank.Replace(f.Text)
	}
	return strings.Join(lines, "\n")
}
