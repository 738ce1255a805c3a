package trigger

// State is the state of a trigger.
type State string

// The states of a trigger. docs/trigger.md draws the transitions.
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

// states returns all states, those of a trigger's life in their order.
func states() []State {
	return []State{Initializing, Receiving, Executing, Completed, Idle, Reconnecting, Backoff, BuildFailed, Stopped}
}

// Final reports whether a trigger stays in the state.
func (s State) Final() bool { return s == BuildFailed || s == Stopped }

// A stateEvent is what takes a trigger from one state to the next.
type stateEvent string

// The events of a trigger.
const (
	onBuilt           stateEvent = "built"
	onBuildFailed     stateEvent = "build_failed"
	onDelivered       stateEvent = "delivered"
	onDoneBefore      stateEvent = "done_before"
	onNothing         stateEvent = "nothing"
	onReceiveFailed   stateEvent = "receive_failed"
	onSucceeded       stateEvent = "succeeded"
	onRefused         stateEvent = "refused"
	onReleased        stateEvent = "released"
	onFailed          stateEvent = "failed"
	onAcked           stateEvent = "acked"
	onAckFailed       stateEvent = "ack_failed"
	onTick            stateEvent = "tick"
	onReconnected     stateEvent = "reconnected"
	onReconnectFailed stateEvent = "reconnect_failed"
	onReconnectDue    stateEvent = "reconnect_due"
	onEntryDue        stateEvent = "entry_due"
	onPostponed       stateEvent = "postponed"
	onShutdown        stateEvent = "shutdown"
)

// A transition is one line of the table that a trigger runs from.
type transition struct {
	from    State
	on      stateEvent
	to      State
	meaning string // for docs/trigger.md
}

// transitions lists every transition of the state machine. place.go implements the states.
var transitions = []transition{
	{Initializing, onBuilt, Receiving, "the options are right and the driver is connected"},
	{Initializing, onBuildFailed, BuildFailed, "an option is wrong, or what it names is refused or out of reach"},
	{Initializing, onShutdown, Stopped, "the context ended while connecting"},

	{Receiving, onDelivered, Executing, "a delivery came"},
	{Receiving, onDoneBefore, Completed, "an entry came again whose function has succeeded and whose ack had failed"},
	{Receiving, onNothing, Idle, "nothing came within the time that the driver waits"},
	{Receiving, onReceiveFailed, Reconnecting, "the driver failed"},
	{Receiving, onShutdown, Stopped, "the context ended"},

	{Executing, onSucceeded, Completed, "the function returned without error"},
	{Executing, onRefused, Completed, "no payload can be built, the error is permanent, or the deliveries are used up: a dead letter"},
	{Executing, onReleased, Idle, "the entry belongs to another consumer by now: neither ack nor another attempt"},
	{Executing, onFailed, Backoff, "the function returned an error or panicked: the entry stays pending"},

	{Completed, onAcked, Idle, "the source knows; or it need not be told: pub/sub, or a commit that has acknowledged"},
	{Completed, onAckFailed, Reconnecting, "the ack is owed, and tried again before the entry can run again"},

	{Idle, onTick, Receiving, "at once after a delivery, else after 50 ms, or when a failed entry is due"},
	{Idle, onShutdown, Stopped, "the context ended"},

	{Reconnecting, onReconnected, Receiving, "connected, and the delay is over where receiving had failed again and again"},
	{Reconnecting, onReconnectFailed, Backoff, "the driver cannot connect"},
	{Reconnecting, onShutdown, Stopped, "the context ended"},

	{Backoff, onPostponed, Receiving, "at once, without Ordered: the failed entry waits outside of the places until it is due"},
	{Backoff, onEntryDue, Receiving, "with Ordered: the failed entry is due again; or a message of a channel failed and is dropped"},
	{Backoff, onReconnectDue, Reconnecting, "the delay is over"},
	{Backoff, onShutdown, Stopped, "the context ended"},
}

// after returns the state after an event; false where the event cannot happen in the state.
func (s State) after(on stateEvent) (State, bool) {
	for _, t := range transitions {
		if t.from == s && t.on == on {
			return t.to, true
		}
	}
	return s, false
}
