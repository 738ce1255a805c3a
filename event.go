package luatx

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/message"
)

// Event is a message on its way out: it becomes visible with its transaction, and waits in the outbox until a
// relay has published it.
type Event struct {
	// ID is unique; the same id with another body is refused. The outbox remembers it for relay.Config.SentRetention after the
	// event was sent. Empty: derived from the transaction's id and the event's position, so that a replay makes the same event.
	ID string
	// Body is the encoded message. Package outbox encodes and decodes it. It does not begin with +, = or !.
	Body []byte
	// Key orders: the events of one key, on one tag, are published one after the other, as they were committed; each
	// waits until the one before was sent. At most 256 bytes of UTF-8. Empty: the event waits for nobody.
	Key string
	// At schedules: the event is not published before that time, by the server's clock, in ms. It has no Key. Zero: it
	// is published at once.
	At time.Time
}

// stored returns the event as the outbox stores it. The outbox remembers a given id after it has sent the event.
func (e *Event) stored(given bool) shard.Event {
	return shard.Event{ID: e.ID, Body: e.Body, Key: e.Key, At: e.At, Given: given}
}

// check returns an error if the event is invalid. The outbox stores one byte more for an event with a given id.
func (e *Event) check(cfg *Config, given bool) error {
	size := len(e.Body)
	if given {
		size++
	}
	switch {
	case e.ID == "":
		return errors.New("luatx: an event has no id")
	case len(e.Body) == 0:
		return fmt.Errorf("luatx: event %s has no body", e.ID)
	case e.Body[0] == '+' || e.Body[0] == '=' || e.Body[0] == '!':
		return fmt.Errorf("luatx: event %s: a body must not begin with %q", e.ID, e.Body[0])
	case size > cfg.OutboxBytes:
		return fmt.Errorf("%w: event %s: %d bytes, more than OutboxBytes, %d", ErrTooLarge, e.ID, size, cfg.OutboxBytes)
	case e.Key != "" && !e.At.IsZero():
		return fmt.Errorf("luatx: event %s is ordered and scheduled: set Key or At, not both", e.ID)
	case len(e.Key) > maxID || !utf8.ValidString(e.Key):
		return fmt.Errorf("luatx: event %s: key %.40q: use at most %d bytes of UTF-8", e.ID, e.Key, maxID)
	case !e.At.IsZero() && (e.At.Before(time.UnixMilli(0)) || e.At.Year() > 9999):
		return fmt.Errorf("luatx: event %s: At is %v: use the years 1970 to 9999", e.ID, e.At)
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
