package trigger

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is generated")

// allEvents are the events of the table, each once.
func allEvents() []Event {
	var events []Event
	for _, t := range transitions {
		if !slices.Contains(events, t.On) {
			events = append(events, t.On)
		}
	}
	return events
}

// TestNext holds every pair of a state and an event against what is expected of it, the impossible ones too.
func TestNext(t *testing.T) {
	t.Parallel()
	want := map[State]map[Event]State{
		Initializing: {EventBuilt: Receiving, EventBuildFailed: BuildFailed, EventShutdown: Stopped},
		Receiving: {
			EventDelivered: Executing, EventDoneBefore: Completed, EventNothing: Idle, EventReceiveFailed: Reconnecting,
			EventShutdown: Stopped,
		},
		Executing:    {EventSucceeded: Completed, EventRefused: Completed, EventReleased: Idle, EventFailed: Backoff},
		Completed:    {EventAcked: Idle, EventAckFailed: Reconnecting},
		Idle:         {EventTick: Receiving, EventShutdown: Stopped},
		Reconnecting: {EventReconnected: Receiving, EventReconnectFailed: Backoff, EventShutdown: Stopped},
		Backoff:      {EventPostponed: Receiving, EventEntryDue: Receiving, EventReconnectDue: Reconnecting, EventShutdown: Stopped},
	}
	for _, state := range States() {
		for _, event := range allEvents() {
			t.Run(fmt.Sprintf("%s/%s", state, event), func(t *testing.T) {
				t.Parallel()
				to, possible := want[state][event]
				if !possible {
					to = state
				}
				if got, ok := state.Next(event); got != to || ok != possible {
					t.Errorf("leads to %s (%v), want %s (%v)", got, ok, to, possible)
				}
			})
		}
	}
}

// TestTableIsComplete holds that no state is a trap, none is out of reach, and nothing stands there twice.
func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, line := range transitions {
		pair := string(line.From) + "/" + string(line.On)
		if seen[pair] {
			t.Errorf("%s stands there twice", pair)
		}
		seen[pair] = true
		if line.From.Final() || line.Meaning == "" || !slices.Contains(States(), line.To) || !slices.Contains(States(), line.From) {
			t.Errorf("%+v: from a final state, to an unknown one, or without a meaning", line)
		}
	}
	reach := func(from State) map[State]bool {
		reached := map[State]bool{from: true}
		for range States() {
			for _, line := range transitions {
				reached[line.To] = reached[line.To] || reached[line.From]
			}
		}
		return reached
	}
	for _, state := range States() {
		if !reach(Initializing)[state] {
			t.Errorf("%s is out of reach", state)
		}
		if !state.Final() && !reach(state)[Stopped] {
			t.Errorf("%s never ends", state)
		}
		if !state.Final() && state != Initializing && !reach(state)[Receiving] {
			t.Errorf("%s never receives again", state)
		}
	}
	events := allEvents()
	for _, event := range []Event{
		EventBuilt, EventBuildFailed, EventDelivered, EventDoneBefore, EventNothing, EventReceiveFailed, EventSucceeded, EventRefused,
		EventReleased, EventFailed, EventAcked, EventAckFailed, EventTick, EventReconnected, EventReconnectFailed, EventReconnectDue,
		EventEntryDue, EventPostponed, EventShutdown,
	} {
		if !slices.Contains(events, event) {
			t.Errorf("%s is in no line", event)
		}
	}
}

const (
	docs      = "../docs/trigger.md"
	docsBegin = "<!-- generated from trigger/state.go by go generate -->\n"
	docsEnd   = "<!-- end of what is generated -->\n"
)

//go:generate go test -run ^TestStatesAreDocumented$ -update

// TestStatesAreDocumented holds that docs/trigger.md draws the table that the code runs from.
func TestStatesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), docsBegin)
	_, after, ends := strings.Cut(rest, docsEnd)
	if !begins || !ends {
		t.Fatalf("%s lacks the lines %q and %q", docs, docsBegin, docsEnd)
	}
	want := before + docsBegin + statesDocumented() + docsEnd + after
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s draws another table than that of state.go: go generate ./trigger", docs)
	}
	if err := os.WriteFile(docs, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}

func statesDocumented() string {
	var b strings.Builder
	b.WriteString("\n```mermaid\nstateDiagram-v2\n    [*] --> Initializing\n")
	for _, line := range transitions {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", line.From, line.To, line.On)
	}
	for _, state := range States() {
		if state.Final() {
			fmt.Fprintf(&b, "    %s --> [*]\n", state)
		}
	}
	b.WriteString("```\n\n| from | event | to | when |\n|---|---|---|---|\n")
	for _, line := range transitions {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", line.From, line.On, line.To, line.Meaning)
	}
	b.WriteString("\n")
	return b.String()
}
