package trigger

// State is the state of a trigger.
type State string

// The states of a trigger. docs/trigger.md draws the transitions.
const (
	// Initializing validates the options, creates the driver and connects for the first time.
	Initializing State = "Initializing"
	// Receiving waits for a delivery, or for a place to process one.
	Receiving State = "Receiving"
	// Executing builds the payload and runs the function.
	Executing State = "Executing"
	// Completed writes the ack or the dead letter of the delivery.
	Completed State = "Completed"
	// Idle resets the backoff. After a read that returned nothing, it sleeps for 50 ms.
	Idle State = "Idle"
	// Reconnecting reconnects the driver.
	Reconnecting State = "Reconnecting"
	// Backoff waits until the next attempt to reconnect. With Config.Ordered it also waits until a failed entry is due. Otherwise
	// that entry leaves its place at once.
	Backoff State = "Backoff"
	// BuildFailed is final: the trigger could not start. Run has returned the error.
	BuildFailed State = "BuildFailed"
	// Stopped is final: the context of Run has ended, and nothing is in flight.
	Stopped State = "Stopped"
)

// states returns all states, in the order of a trigger's life.
func states() []State {
	return []State{Initializing, Receiving, Executing, Completed, Idle, Reconnecting, Backoff, BuildFailed, Stopped}
}

// Final reports whether a trigger never leaves the state.
func (s State) Final() bool { return s == BuildFailed || s == Stopped }

// A stateEvent moves a trigger from one state to the next.
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

// A transition is one line of the state machine's table.
type transition struct {
	from    State
	on      stateEvent
	to      State
	meaning string // for docs/trigger.md
}

// transitions lists every transition of the state machine. place.go implements the states.
var transitions = []transition{
	{Initializing, onBuilt, Receiving, "the options are valid and the driver is connected"},
	{Initializing, onBuildFailed, BuildFailed, "an option is wrong, or the server rejects the connection or is unreachable"},
	{Initializing, onShutdown, Stopped, "the context ended while connecting"},

	{Receiving, onDelivered, Executing, "the driver returned a delivery"},
	{Receiving, onDoneBefore, Completed, "an entry was delivered again whose function had succeeded and whose ack had failed"},
	{Receiving, onNothing, Idle, "nothing arrived within the time that the driver waits"},
	{Receiving, onReceiveFailed, Reconnecting, "the driver failed"},
	{Receiving, onShutdown, Stopped, "the context ended"},

	{Executing, onSucceeded, Completed, "the function returned without an error"},
	{Executing, onRefused, Completed, "no payload can be built, the error is permanent, or no deliveries are left: the delivery becomes a dead letter"},
	{Executing, onReleased, Idle, "the entry belongs to another consumer now; there is neither an ack nor a retry"},
	{Executing, onFailed, Backoff, "the function returned an error or panicked: the entry stays pending"},

	{Completed, onAcked, Idle, "the ack is written, or not needed: pub/sub has none, and a commit may have acknowledged the entry"},
	{Completed, onAckFailed, Reconnecting, "the ack is owed, and is retried before the entry can run again"},

	{Idle, onTick, Receiving, "at once after a delivery, otherwise after 50 ms or when a failed entry is due"},
	{Idle, onShutdown, Stopped, "the context ended"},

	{Reconnecting, onReconnected, Receiving, "connected; if receiving has failed repeatedly, after a delay"},
	{Reconnecting, onReconnectFailed, Backoff, "the driver cannot connect"},
	{Reconnecting, onShutdown, Stopped, "the context ended"},

	{Backoff, onPostponed, Receiving, "at once without Ordered: the failed entry waits outside of the places until it is due"},
	{Backoff, onEntryDue, Receiving, "with Ordered, when the failed entry is due again; or when a message of a channel has failed and is dropped"},
	{Backoff, onReconnectDue, Reconnecting, "the delay is over"},
	{Backoff, onShutdown, Stopped, "the context ended"},
}

// after returns the state after an event, and false if the event cannot happen in the state.
func (s State) after(on stateEvent) (State, bool) {
	for _, t := range transitions {
		if t.from == s && t.on == on {
			return t.to, true
		}
	}
	return s, false
}
