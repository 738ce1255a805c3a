package luatx

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/message"
)

// Event is an outgoing message. It becomes visible with its transaction and stays in the outbox until a relay has published it.
// Set either Data and Attributes, or Body.
type Event struct {
	// ID is unique and UTF-8; the same id with another body is rejected. The outbox remembers it for relay.Config.SentRetention
	// after the event was sent. If it is empty, the id is the one in Attributes, or else is derived from the transaction's id and
	// the event's position, so that a replay creates the same event.
	ID string
	// Data is the payload. It is encoded as JSON unless it is a []byte or a json.RawMessage. Nil means no data.
	Data any
	// Attributes are the attributes of CloudEvents, such as type, source, subject and destination. The type defaults to the name
	// that message.DottedNaming gives the Go type of Data.
	Attributes message.Attributes
	// Body is the whole event in the JSON format of CloudEvents, for callers that have encoded it. Package outbox encodes and
	// decodes it. Data and Attributes must be empty. A body that is not a CloudEvent is rejected.
	Body []byte
	// Key is the ordering key, at most 256 bytes of UTF-8. Events with the same key and shard are published one after the other
	// in the order of their commits; each waits until the previous one was sent. An event without a key waits for no other.
	Key string
	// At is the time before which the event is not published, by the server's clock, in milliseconds. A scheduled event has no
	// Key. The zero time publishes the event at once.
	At time.Time
}

// encode checks and encodes an event for the outbox. An event without an id gets the derived one. The outbox remembers any other
// id after it has sent the event. The body may use the memory of room.
func (e *Event) encode(cfg *Config, derived string, room []byte) (shard.Event, error) {
	stored := shard.Event{ID: e.ID, Body: e.Body, Key: e.Key, At: e.At}
	switch given := e.Attributes.ID(); {
	case e.ID != "" && given != "" && e.ID != given:
		return stored, fmt.Errorf("luatx: event %s has the id %q among its attributes; set one of them", e.ID, given)
	case e.ID == "":
		stored.ID = given
	}
	stored.ID = cmp.Or(stored.ID, derived)
	stored.Given = stored.ID != derived
	if stored.ID == "" {
		return stored, errors.New("luatx: an event has no id")
	}
	if err := e.encodeBody(&stored, room); err != nil {
		return stored, err
	}
	return stored, e.check(&stored, cfg)
}

// encodeBody encodes Data and Attributes, or checks Body.
func (e *Event) encodeBody(stored *shard.Event, room []byte) (err error) {
	typed := e.Data != nil || e.Attributes != nil
	switch {
	case typed && e.Body != nil:
		return fmt.Errorf("luatx: event %s has a Body, and Data or Attributes; leave one out", stored.ID)
	case typed:
		msg := message.Message{Data: e.Data, Attributes: e.typed()}
		if stored.Body, err = msg.AppendJSON(room[:0], stored.ID); err != nil {
			return fmt.Errorf("luatx: event %s: %w", stored.ID, err)
		}
		stored.Own = true
		return nil
	case len(e.Body) == 0:
		return fmt.Errorf("luatx: event %s has no body; set Data and Attributes", stored.ID)
	}
	if err := new(message.RawMessage).UnmarshalJSON(e.Body); err != nil {
		return fmt.Errorf("luatx: event %s: the body is no CloudEvent in JSON: %w; set Data and Attributes instead", stored.ID, err)
	}
	return nil
}

// typed returns the attributes with a type, which defaults to that of the Go type of Data.
func (e *Event) typed() message.Attributes {
	if e.Attributes.Type() != "" || e.Data == nil {
		return e.Attributes
	}
	name := message.DottedNaming(reflect.TypeOf(e.Data))
	if name == "" {
		return e.Attributes
	}
	attrs := maps.Clone(e.Attributes)
	if attrs == nil {
		attrs = message.Attributes{}
	}
	attrs[message.AttrType] = name
	return attrs
}

// check returns the error of an encoded event that the outbox does not accept.
func (e *Event) check(stored *shard.Event, cfg *Config) error {
	size := len(stored.Body)
	if stored.Given {
		size++ // for the mark of a given id
	}
	switch {
	case !utf8.ValidString(stored.ID): // JSON would replace the invalid bytes, so that different ids become one
		return fmt.Errorf("luatx: event %.40q: the id is not UTF-8; encode it, for example in hexadecimal digits", stored.ID)
	case size > cfg.OutboxBytes:
		return fmt.Errorf("%w: event %s: %d bytes, more than OutboxBytes, %d", ErrTooLarge, stored.ID, size, cfg.OutboxBytes)
	case e.Key != "" && !e.At.IsZero():
		return fmt.Errorf("luatx: event %s is ordered and scheduled; set Key or At, not both", stored.ID)
	case len(e.Key) > maxID || !utf8.ValidString(e.Key):
		return fmt.Errorf("luatx: event %s: key %.40q; use at most %d bytes of UTF-8", stored.ID, e.Key, maxID)
	case !e.At.IsZero() && (e.At.Before(time.UnixMilli(0)) || e.At.Year() > 9999):
		return fmt.Errorf("luatx: event %s: At is %v; use the years 1970 to 9999", stored.ID, e.At)
	}
	return nil
}

// MessageID identifies a message in the inbox of an aggregate. Two messages are the same if all three fields and the aggregate
// are equal. The same id under another aggregate is another message.
type MessageID struct {
	// Scope names the service and its handler. Each handler applies a message once.
	Scope string
	// Source and ID identify the message, as in CloudEvents.
	Source, ID string
}

// delivery is one delivery of a message, or one call. All runs of the handler share the base of the token, but each run commits
// under its own token, so that a late copy of one run cannot pass for another.
type delivery struct {
	first string // the token of the first run: the base, and the number of the run in two bytes
	runs  uint16
	msg   *message.Message // nil for a call
}

// baseSize is the length of a token's base, in bytes.
const baseSize = 8

func newDelivery(msg *message.Message) delivery {
	token := [baseSize + 2]byte{baseSize + 1: 1}
	_, _ = rand.Read(token[:baseSize]) // never fails: crypto/rand ends the process instead
	return delivery{first: string(token[:]), msg: msg}
}

func (d *delivery) base() string { return d.first[:baseSize] }

func (d *delivery) token() string {
	d.runs++
	if d.runs == 1 {
		return d.first
	}
	return string(binary.BigEndian.AppendUint16([]byte(d.base()), d.runs))
}
