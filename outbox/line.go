package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// line is an event as Export writes it.
type line struct {
	Slot      *int      `json:"slot,omitempty"`
	Tag       string    `json:"tag,omitempty"`       // a text of the slot, for readers
	Aggregate string    `json:"aggregate,omitempty"` // instead of slot, in lines written by hand
	ID        string    `json:"id"`
	State     State     `json:"state"`
	At        time.Time `json:"at,omitzero"` // when it was parked
	Attempts  int       `json:"attempts,omitempty"`
	Key       string    `json:"key,omitempty"`
	Route     string    `json:"destination,omitempty"` // set by an operator; otherwise the body has it
	History   []failure `json:"history,omitempty"`
	// One of these is set: the body itself if it is JSON that keeps its bytes when it is encoded again, otherwise the body in
	// base64, or the SHA-1 in hex of an erased body.
	Body   json.RawMessage `json:"body,omitempty"`
	Base64 []byte          `json:"body_base64,omitempty"`
	Erased string          `json:"erased,omitempty"`
}

type failure struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	Class   string    `json:"class"`
	Text    string    `json:"text,omitempty"`
}

// newLine returns the line of a parked event. It returns an error if the id or the key is not UTF-8.
func newLine(e Event) (line, error) {
	if !utf8.ValidString(e.ID) || !utf8.ValidString(e.Key) {
		return line{}, fmt.Errorf("outbox: export: event %q of slot %d: its id or key is not UTF-8", e.ID, e.Slot)
	}
	l := line{
		Slot: &e.Slot, Tag: slot.Text(e.Slot), ID: e.ID, State: e.State, At: e.At.UTC(), Attempts: e.Attempts, Key: e.Key,
		Route: e.route, Erased: e.digest,
	}
	for _, f := range e.History {
		f.At = f.At.UTC()
		l.History = append(l.History, failure(f))
	}
	if isPlainJSON(e.Body) {
		l.Body = e.Body
	} else {
		l.Base64 = e.Body
	}
	return l, nil
}

// isPlainJSON reports whether a body keeps its bytes when it is written and read as JSON.
func isPlainJSON(body []byte) bool {
	var compact bytes.Buffer
	return utf8.Valid(body) && json.Compact(&compact, body) == nil && bytes.Equal(compact.Bytes(), body)
}

// encode returns the line as JSON with a line feed.
func (l line) encode() ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(l)
	return text.Bytes(), err
}

// place returns the slot of the line's shard, which must be one of slots.
func (l line) place(s *Store, slots map[int]bool) (int, error) {
	switch {
	case l.Slot != nil && l.Aggregate != "":
		return 0, errors.New("it has a slot and an aggregate; leave one out")
	case l.Aggregate != "":
		return s.Slot(l.Aggregate)
	case l.Slot == nil:
		return 0, errors.New("it has neither a slot nor an aggregate")
	case !slots[*l.Slot]:
		return 0, fmt.Errorf("this keyspace has no shard in slot %d; set the aggregate instead", *l.Slot)
	case l.Tag != "" && slot.OfTag(l.Tag) != *l.Slot:
		return 0, fmt.Errorf("the tag %q does not belong to slot %d", l.Tag, *l.Slot)
	}
	return *l.Slot, nil
}

// event returns the event of the line as the shard imports it.
func (l line) event(most int) (shard.Imported, error) {
	body := l.Base64
	if len(l.Body) > 0 {
		body = l.Body
	}
	switch {
	case l.ID == "":
		return shard.Imported{}, errors.New("it has no id")
	case l.Erased == "" && len(body) == 0:
		return shard.Imported{}, errors.New("it has no body")
	case l.Erased != "" && (len(body) > 0 || !isDigest(l.Erased)):
		return shard.Imported{}, errors.New("erased must be the SHA-1 of the missing body")
	case len(l.Body) > 0 && len(l.Base64) > 0:
		return shard.Imported{}, errors.New("it has two bodies")
	case len(body) > most:
		return shard.Imported{}, fmt.Errorf("the body has %d bytes; OutboxBytes allows %d", len(body), most)
	case len(body) > 0 && slices.Contains(marks, body[0]):
		return shard.Imported{}, fmt.Errorf("the body begins with %q, which is no format of luatx", body[0])
	case l.Attempts < 0:
		return shard.Imported{}, fmt.Errorf("it has %d attempts", l.Attempts)
	}
	failures := make([]Failure, 0, maxHistory)
	for _, f := range l.History[:min(len(l.History), maxHistory)] {
		failures = append(failures, Failure(f))
	}
	at := l.At
	if at.Before(time.UnixMilli(0)) {
		at = time.Now()
	}
	return shard.Imported{
		ID: l.ID, Key: l.Key, Parked: at, Attempts: l.Attempts, History: historyLines(failures), Route: l.Route, Body: body,
		Digest: l.Erased,
	}, nil
}

// marks lead the values in a shard that are no bodies; see internal/lua/_body.lua.
var marks = []byte{lua.GivenMark, lua.SentMark, lua.ErasedMark, lua.StagedMark}

// maxHistory is the number of failures that a shard keeps for an event.
const maxHistory = 5

func isDigest(text string) bool {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(text) == 40
}
