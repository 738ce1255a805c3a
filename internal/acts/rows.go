// Package acts holds what the operator's API and the luatx command have in common: the JSON of events, records and findings,
// and the operations on many events.
package acts

import (
	"time"

	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/repair"
)

// Event is an outbox.Event as JSON, without its history and its body.
type Event struct {
	Slot        int          `json:"slot"`
	ID          string       `json:"id"`
	State       outbox.State `json:"state"`
	At          time.Time    `json:"at,omitzero"`
	Attempts    int          `json:"attempts"`
	Destination string       `json:"destination"`
	Type        string       `json:"type"`
	Key         string       `json:"key"`
	Behind      string       `json:"behind,omitempty"`
	HoldsBack   int          `json:"holds_back,omitempty"`
	Scheduled   bool         `json:"scheduled,omitempty"`
	Class       string       `json:"class"`
	Error       string       `json:"error"`
	Erased      bool         `json:"erased"`
}

// NewEvent returns the JSON of an event.
func NewEvent(e outbox.Event) Event {
	row := Event{e.Slot, e.ID, e.State, pretty.Time(e.At), e.Attempts, e.Destination, "", e.Key, e.Behind, e.HoldsBack, e.Scheduled, e.Class, e.Error, e.Erased}
	if e.Message != nil {
		row.Type = e.Message.Type()
	}
	return row
}

// StateOf returns the narrowest state of an event that outbox.Store.List accepts.
func StateOf(e outbox.Event) outbox.State {
	switch {
	case e.Scheduled:
		return outbox.Scheduled
	case e.State == outbox.Pending && e.Attempts > 0:
		return outbox.Retrying
	}
	return e.State
}

// IsIn reports whether an event is in a state that outbox.Store.List accepts. A scheduled or retrying event is also pending.
func IsIn(e outbox.Event, state outbox.State) bool { return e.State == state || StateOf(e) == state }

// Failure is an outbox.Failure as JSON.
type Failure struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	Class   string    `json:"class"`
	Text    string    `json:"text"`
}

// NewHistory returns the JSON of the failures of an event.
func NewHistory(e outbox.Event) []Failure {
	all := []Failure{}
	for _, f := range e.History {
		f.At = pretty.Time(f.At)
		all = append(all, Failure(f))
	}
	return all
}

// Record is an outbox.Record as JSON.
type Record struct {
	Slot      int       `json:"slot"`
	At        time.Time `json:"at"`
	Operation string    `json:"operation"`
	Call      int       `json:"call"`
	Who       string    `json:"who"`
	Act       string    `json:"act"`
	Why       string    `json:"why"`
	Done      int       `json:"done"`
	Asked     int       `json:"asked"`
	IDs       []string  `json:"ids"`
}

// NewRecord returns the JSON of a record.
func NewRecord(r outbox.Record) Record {
	r.At, r.IDs = pretty.Time(r.At), append([]string{}, r.IDs...)
	return Record(r)
}

// Finding is a repair.Finding as JSON.
type Finding struct {
	Slot   int    `json:"slot"`
	Kind   string `json:"kind"`
	Key    string `json:"key"`
	ID     string `json:"id"`
	Detail string `json:"detail"`
	Fixed  bool   `json:"fixed"`
	Text   string `json:"text"`
}

// NewFinding returns the JSON of a finding.
func NewFinding(f repair.Finding) Finding {
	return Finding{f.Slot, string(f.Kind), f.Key, f.ID, f.Detail, f.Fixed, f.String()}
}
