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

// allEvents lists each event of the table once.
func allEvents() []stateEvent {
	var events []stateEvent
	for _, t := range transitions {
		if !slices.Contains(events, t.on) {
			events = append(events, t.on)
		}
	}
	return events
}

func TestEveryStateIsReachableAndNoneIsATrap(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, line := range transitions {
		pair := string(line.from) + "/" + string(line.on)
		if seen[pair] {
			t.Errorf("%s stands there twice", pair)
		}
		seen[pair] = true
		if line.from.Final() || line.meaning == "" || !slices.Contains(states(), line.to) || !slices.Contains(states(), line.from) {
			t.Errorf("%+v: from a final state, to an unknown one, or without a meaning", line)
		}
	}
	reach := func(from State) map[State]bool {
		reached := map[State]bool{from: true}
		for range states() {
			for _, line := range transitions {
				reached[line.to] = reached[line.to] || reached[line.from]
			}
		}
		return reached
	}
	for _, state := range states() {
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
	for _, state := range states() {
		for _, event := range events {
			if to, ok := state.after(event); ok != seen[string(state)+"/"+string(event)] || !ok && to != state {
				t.Errorf("%s after %s leads to %s (%t)", state, event, to, ok)
			}
		}
	}
	for _, event := range []stateEvent{
		onBuilt, onBuildFailed, onDelivered, onDoneBefore, onNothing, onReceiveFailed, onSucceeded, onRefused,
		onReleased, onFailed, onAcked, onAckFailed, onTick, onReconnected, onReconnectFailed, onReconnectDue,
		onEntryDue, onPostponed, onShutdown,
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
		fmt.Fprintf(&b, "    %s --> %s: %s\n", line.from, line.to, line.on)
	}
	for _, state := range states() {
		if state.Final() {
			fmt.Fprintf(&b, "    %s --> [*]\n", state)
		}
	}
	b.WriteString("```\n\n| from | event | to | when |\n|---|---|---|---|\n")
	for _, line := range transitions {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", line.from, line.on, line.to, line.meaning)
	}
	b.WriteString("\n")
	return b.String()
}
