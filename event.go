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

// Event is a message on its way out: it becomes visible with its transaction, and waits in the outbox until a
// relay has published it. Either Data and Attributes or Body say what it is.
type Event struct {
	// ID is unique; the same id with another body is refused. The outbox remembers it for relay.Config.SentRetention after the event was
	// sent. Empty: the id among the Attributes, or else derived from the transaction's id and the event's position, so that a
	// replay makes the same event.
	ID string
	// Data is the payload; it is encoded as JSON unless it is a []byte or a json.RawMessage. Nil: the event has none.
	Data any
	// Attributes are those of CloudEvents, such as type, source, subject and destination. Without a type the event has that
	// of the Go type of Data, by message.DottedNaming.
	Attributes message.Attributes
	// Body is the whole event in the JSON format of CloudEvents, for callers that have encoded it: package outbox encodes
	// and decodes it. Data and Attributes are empty then. A body that is no such event is refused.
	Body []byte
	// Key orders: the events of one key, on one tag, are published one after the other, as they were committed; each
	// waits until the one before was sent. At most 256 bytes of UTF-8. Empty: the event waits for nobody.
	Key string
	// At schedules: the event is not published before that time, by the server's clock, in ms. It has no Key. Zero: it
	// is published at once.
	At time.Time
}

// encode checks an event and makes what the outbox stores. An event without an id has the derived one. The outbox remembers any other
// id after it has sent the event.
func (e *Event) encode(cfg *Config, derived string) (shard.Event, error) {
	stored := shard.Event{ID: e.ID, Body: e.Body, Key: e.Key, At: e.At}
	switch given := e.Attributes.ID(); {
	case e.ID != "" && given != "" && e.ID != given:
		return stored, fmt.Errorf("luatx: event %s has the id %q among its attributes: set one of them", e.ID, given)
	case e.ID == "":
		stored.ID = given
	}
	stored.ID = cmp.Or(stored.ID, derived)
	stored.Given = stored.ID != derived
	if stored.ID == "" {
		return stored, errors.New("luatx: an event has no id")
	}
	if err := e.encodeBody(&stored); err != nil {
		return stored, err
	}
	return stored, e.check(&stored, cfg)
}

// encodeBody encodes Data and Attributes, or checks the Body.
func (e *Event) encodeBody(stored *shard.Event) (err error) {
	typed := e.Data != nil || e.Attributes != nil
	switch {
	case typed && e.Body != nil:
		return fmt.Errorf("luatx: event %s has a Body, and Data or Attributes: leave one out", stored.ID)
	case typed:
		msg := message.Message{Data: e.Data, Attributes: e.typed()}
		if stored.Body, err = msg.MarshalJSONAs(stored.ID); err != nil {
			return fmt.Errorf("luatx: event %s: %w", stored.ID, err)
		}
		return nil
	case len(e.Body) == 0:
		return fmt.Errorf("luatx: event %s has no body: set Data and Attributes", stored.ID)
	}
	if err := new(message.RawMessage).UnmarshalJSON(e.Body); err != nil {
		return fmt.Errorf("luatx: event %s: the body is no CloudEvent in JSON: %w; set Data and Attributes instead", stored.ID, err)
	}
	return nil
}

// typed returns the attributes with a type.
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

// check says what is wrong with an encoded event.
func (e *Event) check(stored *shard.Event, cfg *Config) error {
	size := len(stored.Body)
	if stored.Given {
		size++ // the mark of a given id
	}
	switch {
	case size > cfg.OutboxBytes:
		return fmt.Errorf("%w: event %s: %d bytes, more than OutboxBytes, %d", ErrTooLarge, stored.ID, size, cfg.OutboxBytes)
	case e.Key != "" && !e.At.IsZero():
		return fmt.Errorf("luatx: event %s is ordered and scheduled: set Key or At, not both", stored.ID)
	case len(e.Key) > maxID || !utf8.ValidString(e.Key):
		return fmt.Errorf("luatx: event %s: key %.40q: use at most %d bytes of UTF-8", stored.ID, e.Key, maxID)
	case !e.At.IsZero() && (e.At.Before(time.UnixMilli(0)) || e.At.Year() > 9999):
		return fmt.Errorf("luatx: event %s: At is %v: use the years 1970 to 9999", stored.ID, e.At)
	}
	return nil
}

// MessageID names a message for the inbox of an aggregate. Two messages are the same if all three fields and the aggregate
// are equal: the same id under another aggregate is another message.
type MessageID struct {
	// Scope names the service and its handler: each handler of a message applies it once.
	Scope string
	// Source and ID identify the message, as in CloudEvents.
	Source, ID string
}

// delivery is one delivery of a message, or one call: its token's base is kept across the runs of the handler,
// and every run commits under a token of its own. A late copy of one run must not pass for another.
type delivery struct {
	first string // the token of the first run: the base, and the number of the run in two bytes
	runs  uint16
	msg   *message.Message // nil for a call
}

// baseSize is the length of a token's base.
const baseSize = 8

func newDelivery(msg *message.Message) delivery {
	token := [baseSize + 2]byte{baseSize + 1: 1}
	_, _ = rand.Read(token[:baseSize]) // never fails: crypto/rand ends the process instead
	return delivery{first: string(token[:]), msg: msg}
}

func (d *delivery) base() string { return d.first[:baseSize] }

// token returns the token of the next run.
func (d *delivery) token() string {
	d.runs++
	if d.runs == 1 {
		return d.first
	}
	return string(binary.BigEndian.AppendUint16([]byte(d.base()), d.runs))
}
