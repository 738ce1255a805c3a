package shard

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/lua"
)

// Event is an event as the outbox keeps it.
type Event struct {
	ID   string
	Body []byte
	Key  string    // ordered among those of the same one, where it is not empty
	At   time.Time // scheduled, where it is not zero
	// Given is true if the id was not derived from a message. The shard remembers such an id after the event was sent.
	Given bool
	// Own is true if the body was made for the event, so that nobody else changes it.
	Own bool
	// Reference stands for a large body in the outbox, see internal/lua/_body.lua; empty: the body itself does.
	Reference string
}

// Plain reports whether an event is neither ordered nor scheduled.
func (e *Event) Plain() bool { return e.Key == "" && e.At.IsZero() }

// Append lays an event out as internal/lua/_events.lua reads it, with its head where such are sent.
func (e *Event) Append(args []any, head bool) []any {
	args = append(args, &e.ID)
	if head {
		args = append(args, e.head())
	}
	return append(args, (*body)(e))
}

// Stage sets the Reference of the nth event of a run.
func (e *Event) Stage(run string, nth int) {
	e.Reference = fmt.Sprintf("%c%d %x.%d", lua.StagedMark, len(e.Body)+digit(e.Given), run, nth)
}

// body is an event's body as an argument: a pointer costs no allocation, where a slice costs one.
type body Event

// MarshalBinary implements encoding.BinaryMarshaler.
func (b *body) MarshalBinary() ([]byte, error) {
	if b.Reference != "" {
		return Stored([]byte(b.Reference), b.Given), nil
	}
	return Stored(b.Body, b.Given), nil
}

const givenMark = string(rune(lua.GivenMark))

// Stored returns a body as the hash entries holds it, see internal/lua/_body.lua.
func Stored(body []byte, given bool) []byte {
	if !given {
		return body
	}
	return append([]byte(givenMark), body...)
}

// unstored is the inverse of Stored.
func unstored(text string) (body []byte, given bool) {
	text, given = strings.CutPrefix(text, givenMark)
	return []byte(text), given
}

func (e *Event) head() string {
	switch {
	case e.Key != "":
		return "k" + escapeKey(e.Key)
	case !e.At.IsZero():
		return "a" + eval.Millis(e.At)
	}
	return ""
}

// ReadEvent reads what Append wrote.
func ReadEvent(id, head, body string) Event {
	event := Event{ID: id}
	event.Body, event.Given = unstored(body)
	if key, ok := strings.CutPrefix(head, "k"); ok {
		event.Key = unescapeKey(key)
	} else if at, ok := strings.CutPrefix(head, "a"); ok {
		ms, _ := strconv.ParseInt(at, 10, 64)
		event.At = time.UnixMilli(ms)
	}
	return event
}

// A member of a lane has the key before a NUL, so the key has none.
var (
	keyEscaper   = strings.NewReplacer("%", "%25", "\x00", "%00")
	keyUnescaper = strings.NewReplacer("%25", "%", "%00", "\x00")
)

func escapeKey(key string) string   { return keyEscaper.Replace(key) }
func unescapeKey(key string) string { return keyUnescaper.Replace(key) }
