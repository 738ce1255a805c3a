package outbox

import (
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/message"
)

// State is where an event is on its way.
type State string

// The states. An event is in one of them.
const (
	// Pending: it is due, or will be at its time, and no relay has it. Counts.Pending includes the leased events.
	Pending State = "pending"
	// Leased: a relay has it.
	Leased State = "leased"
	// Waiting: it stands behind others of its lane.
	Waiting State = "waiting"
	// Sent: it was published, and is remembered for a while.
	Sent State = "sent"
	// Parked: it used up its attempts, was refused for good, or was erased. It stays until an operator acts.
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

// letters are the states as internal/lua/list.lua says them.
var letters = map[byte]State{'p': Pending, 'l': Leased, 'w': Waiting, 's': Sent, 'k': Parked}

// Event is an event in the outbox, with all that is known about it.
type Event struct {
	Slot  int
	ID    string
	State State
	// At is, by the server's clock: of a Pending event when it is tried next, of a Leased one when its lease runs out,
	// of a Sent one when it was sent, of a Parked one when it was parked; zero of a Waiting one.
	At time.Time
	// Scheduled reports that it has a time of its own, and that no relay has claimed it yet.
	Scheduled bool
	// Attempts since it came or was re-armed, the current one included.
	Attempts int
	// Lease is the identity of the last claim; empty: nobody has it.
	Lease string
	// Key is its ordering key, as long as it is in a lane.
	Key string
	// Behind is the id of the event that it waits behind: the first one of its lane. HoldsBack is the number of events that wait
	// behind it, if it is the first one itself.
	Behind    string
	HoldsBack int
	// Destination is where it is to be published: as its body says, or an operator.
	Destination string
	// Error is the text of its last failure, and Class what kind of failure that was: what a parked one was parked for.
	// Both are empty where there was none.
	Error, Class string
	// History is of its last five failures, newest first. It stays when the event is re-armed.
	History []Failure
	// Message is its body; nil where it was not kept, was erased or cannot be decoded.
	Message *message.RawMessage
	// Body is the body as it was committed; nil where there is none.
	Body []byte
	// Erased: an operator has erased its body; it cannot be re-armed.
	Erased bool

	position // in a list by state

	route  string
	bare   bool   // there is no body
	digest string // of a body that was erased
}

// Failure is an attempt that did not succeed.
type Failure struct {
	At      time.Time // by the server's clock
	Attempt int
	// Class is what kind of failure it was, without blanks: what its error says by a method Class() string, else
	// refused, exhausted, malformed, crashed, failed, or erased. See docs/operations.md.
	Class string
	Text  string
}

func (e Event) last() Failure {
	if len(e.History) == 0 {
		return Failure{}
	}
	return e.History[0]
}

// event reads what a listing says. The error is that of a body that cannot be decoded.
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

// historyLines writes failures as internal/lua/_errors.lua keeps them.
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
