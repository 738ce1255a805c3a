package trigger

import "slices"

// State is where a trigger stands.
type State string

// The states of a trigger. Transitions says how it goes from one to another.
const (
	// Initializing checks the options, builds the driver and connects for the first time.
	Initializing State = "Initializing"
	// Receiving waits for a delivery, and while there is no place for one, for that.
	Receiving State = "Receiving"
	// Executing builds the payload and runs the function.
	Executing State = "Executing"
	// Completed tells the source what became of the delivery: an ack, or a dead letter.
	Completed State = "Completed"
	// Idle resets the backoff, and where nothing had come sleeps for 50 ms.
	Idle State = "Idle"
	// Reconnecting asks the driver to connect anew.
	Reconnecting State = "Reconnecting"
	// Backoff waits until the next attempt to reconnect. With Config.Ordered it also waits until a failed entry is due;
	// without, that entry leaves its place at once.
	Backoff State = "Backoff"
	// BuildFailed is final: the trigger could not begin. Run has returned what is wrong.
	BuildFailed State = "BuildFailed"
	// Stopped is final: the context of Run has ended, and nothing is in flight.
	Stopped State = "Stopped"
)

// States returns all states, those of a trigger's life in their order.
func States() []State {
	return []State{Initializing, Receiving, Executing, Completed, Idle, Reconnecting, Backoff, BuildFailed, Stopped}
}

// Final says whether a trigger stays in the state for good.
func (s State) Final() bool { return s == BuildFailed || s == Stopped }

// Event is what takes a trigger from one state to the next.
type Event string

// The events of a trigger.
const (
	EventBuilt           Event = "built"
	EventBuildFailed     Event = "build_failed"
	EventDelivered       Event = "delivered"
	EventDoneBefore      Event = "done_before"
	EventNothing         Event = "nothing"
	EventReceiveFailed   Event = "receive_failed"
	EventSucceeded       Event = "succeeded"
	EventRefused         Event = "refused"
	EventReleased        Event = "released"
	EventFailed          Event = "failed"
	EventAcked           Event = "acked"
	EventAckFailed       Event = "ack_failed"
	EventTick            Event = "tick"
	EventReconnected     Event = "reconnected"
	EventReconnectFailed Event = "reconnect_failed"
	EventReconnectDue    Event = "reconnect_due"
	EventEntryDue        Event = "entry_due"
	EventPostponed       Event = "postponed"
	EventShutdown        Event = "shutdown"
)

// Transition is one line of the table that a trigger runs from.
type Transition struct {
	From State
	On   Event
	To   State
	// Meaning says in words when it happens.
	Meaning string
}

// transitions is the whole machine: what is not in it cannot happen. What a trigger does in a state is in lane.go.
var transitions = []Transition{
	{Initializing, EventBuilt, Receiving, "the options are right and the driver is connected"},
	{Initializing, EventBuildFailed, BuildFailed, "an option is wrong, or what it names is refused or out of reach"},
	{Initializing, EventShutdown, Stopped, "the context ended while connecting"},

	{Receiving, EventDelivered, Executing, "a delivery came"},
	{Receiving, EventDoneBefore, Completed, "an entry came again whose function has succeeded and whose ack had failed"},
	{Receiving, EventNothing, Idle, "nothing came within the time that the driver waits"},
	{Receiving, EventReceiveFailed, Reconnecting, "the driver failed"},
	{Receiving, EventShutdown, Stopped, "the context ended"},

	{Executing, EventSucceeded, Completed, "the function returned without error"},
	{Executing, EventRefused, Completed, "no payload can be built, the error is permanent, or the deliveries are used up: a dead letter"},
	{Executing, EventReleased, Idle, "the entry belongs to another consumer by now: neither ack nor another attempt"},
	{Executing, EventFailed, Backoff, "the function returned an error or panicked: the entry stays pending"},

	{Completed, EventAcked, Idle, "the source knows; or it need not be told: pub/sub, or a commit that has acknowledged"},
	{Completed, EventAckFailed, Reconnecting, "the ack is owed, and tried again before the entry can run again"},

	{Idle, EventTick, Receiving, "at once after a delivery, else after 50 ms, or when a failed entry is due"},
	{Idle, EventShutdown, Stopped, "the context ended"},

	{Reconnecting, EventReconnected, Receiving, "connected, and the delay is over where receiving had failed again and again"},
	{Reconnecting, EventReconnectFailed, Backoff, "the driver cannot connect"},
	{Reconnecting, EventShutdown, Stopped, "the context ended"},

	{Backoff, EventPostponed, Receiving, "at once, without Ordered: the failed entry waits outside of the places until it is due"},
	{Backoff, EventEntryDue, Receiving, "with Ordered: the failed entry is due again; or a message of a channel failed and is dropped"},
	{Backoff, EventReconnectDue, Reconnecting, "the delay is over"},
	{Backoff, EventShutdown, Stopped, "the context ended"},
}

// Transitions returns the table.
func Transitions() []Transition { return slices.Clone(transitions) }

// Next returns the state after an event; false where the event cannot happen in the state.
func (s State) Next(on Event) (State, bool) {
	for _, t := range transitions {
		if t.From == s && t.On == on {
			return t.To, true
		}
	}
	return s, false
}
