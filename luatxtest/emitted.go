package luatxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// Want selects events that match all of its set fields.
type Want struct {
	// ID, Type, Source, Subject and Destination are attributes of the event. Key is its ordering key, which it has while it is in
	// a lane.
	ID, Type, Source, Subject, Destination, Key string
	// Data must equal the event's data, compared as JSON. Nil matches any data.
	Data any
	// Match must match the event's attributes as well.
	Match message.Matcher
}

// String returns the set fields.
func (w Want) String() string {
	var set []string
	for _, part := range w.texts() {
		if part.want != "" {
			set = append(set, fmt.Sprintf("%s %q", part.name, part.want))
		}
	}
	if w.Data != nil {
		text, _ := json.Marshal(w.Data)
		set = append(set, "data "+string(text))
	}
	if w.Match != nil {
		set = append(set, "a matcher")
	}
	if len(set) == 0 {
		return "any event"
	}
	return strings.Join(set, ", ")
}

type part struct {
	name, want string
	of         func(message.Attributes) string
}

func (w Want) texts() []part {
	return []part{
		{"id", w.ID, message.Attributes.ID},
		{"type", w.Type, message.Attributes.Type},
		{"source", w.Source, message.Attributes.Source},
		{"subject", w.Subject, message.Attributes.Subject},
		{"destination", w.Destination, message.Attributes.Destination},
		{"key", w.Key, nil},
	}
}

// meets reports whether an event matches.
func (w Want) meets(e outbox.Event) bool {
	if e.Message == nil {
		return w.ID == e.ID && w.Data == nil && w.Match == nil && w.Type+w.Source+w.Subject+w.Destination+w.Key == ""
	}
	for _, part := range w.texts() {
		got := e.Key
		if part.of != nil {
			got = part.of(e.Message.Attributes)
		}
		if part.want != "" && part.want != got {
			return false
		}
	}
	return (w.Match == nil || w.Match(e.Message.Attributes)) && (w.Data == nil || sameJSON(w.Data, e.Message.Data))
}

// sameJSON reports whether a value and encoded data are equal as JSON.
func sameJSON(want any, got []byte) bool {
	text, err := json.Marshal(want)
	if err != nil {
		return false
	}
	var a, b any
	return json.Unmarshal(text, &a) == nil && json.Unmarshal(got, &b) == nil && reflect.DeepEqual(a, b)
}

// Emitted returns the events in the outbox of a Transactor, in any state. Sent events have no Message, unless the relay keeps it
// (relay.Config.KeepSentBodies). Call Emitted before a relay runs, or check its publisher.
func Emitted(t testing.TB, tr *luatx.Transactor) []outbox.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lookTimeout)
	defer cancel()
	var slots []int
	for chunk := range slices.Chunk(tr.Keyspace().Slots(), slotsAtOnce) {
		found, err := link.Of(tr).Scripts.Counts(ctx, chunk)
		if err != nil {
			t.Fatalf("luatxtest: the outbox cannot be looked at: %v", err)
		}
		slots = slices.AppendSeq(slots, maps.Keys(found))
	}
	slices.Sort(slots)
	if len(slots) == 0 {
		return nil
	}
	var all []outbox.Event
	for _, state := range []outbox.State{outbox.Pending, outbox.Leased, outbox.Waiting, outbox.Parked, outbox.Sent} {
		for e, err := range outbox.NewStore(tr).List(ctx, state, outbox.ListOptions{Slots: slots}) {
			if err != nil {
				t.Fatalf("luatxtest: the outbox cannot be read: %v", err)
			}
			all = append(all, e)
		}
	}
	return all
}

const (
	lookTimeout = 30 * time.Second
	slotsAtOnce = 256 // in one pipeline
)

// RequireEmitted fails the test unless the outbox of a Transactor has a different event for each of the wants. The outbox may
// have more events. RequireEmitted returns the events in the order of the wants.
func RequireEmitted(t testing.TB, tr *luatx.Transactor, wants ...Want) []outbox.Event {
	t.Helper()
	all := Emitted(t, tr)
	chosen, missing := assign(all, wants)
	if missing >= 0 {
		t.Fatalf("luatxtest: no event for want %d: %s\nin the outbox: %s", missing, wants[missing], shown(all))
	}
	found := make([]outbox.Event, len(wants))
	for i, at := range chosen {
		found[i] = all[at]
	}
	return found
}

// RequireNothingEmitted fails the test if the outbox of a Transactor has an event, even one that was sent.
func RequireNothingEmitted(t testing.TB, tr *luatx.Transactor) {
	t.Helper()
	if all := Emitted(t, tr); len(all) > 0 {
		t.Fatalf("luatxtest: nothing should have been emitted; in the outbox: %s", shown(all))
	}
}

// assign assigns a different event to each want, or returns the index of the first want for which no assignment has one.
func assign(all []outbox.Event, wants []Want) (chosen []int, missing int) {
	taken := make(map[int]int) // event: want
	var find func(want int, tried map[int]bool) bool
	find = func(want int, tried map[int]bool) bool {
		for at, e := range all {
			if tried[at] || !wants[want].meets(e) {
				continue
			}
			tried[at] = true
			if other, held := taken[at]; !held || find(other, tried) {
				taken[at] = want
				return true
			}
		}
		return false
	}
	for i := range wants {
		if !find(i, make(map[int]bool)) {
			return nil, i
		}
	}
	chosen = make([]int, len(wants))
	for at, want := range taken {
		chosen[want] = at
	}
	return chosen, -1
}

// shown formats events for the message of a failed test.
func shown(all []outbox.Event) string {
	const most = 20
	if len(all) == 0 {
		return "nothing"
	}
	var b strings.Builder
	for i, e := range all {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(all)-most)
			break
		}
		fmt.Fprintf(&b, "\n  %s %s", e.State, e.ID)
		if e.Message != nil {
			fmt.Fprintf(&b, " type %q destination %q data %.200s", e.Message.Type(), e.Message.Destination(), e.Message.Data)
		}
	}
	return b.String()
}
