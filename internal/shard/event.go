package shard

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/lua"
)

// Event is an event as the outbox stores it.
type Event struct {
	ID   string
	Body []byte
	Key  string    // the ordering key; empty: the event is not ordered
	At   time.Time // when a scheduled event is due; zero: the event is not scheduled
	// Given is true if the id was not derived from a message. The shard remembers such an id after the event was sent.
	Given bool
	// Own is true if the body was created for the event, so that no other code changes it.
	Own bool
	// Reference replaces a large body in the outbox; see internal/lua/_body.lua. If it is empty, the outbox contains
	// the body itself.
	Reference string
}

// Plain reports whether an event is neither ordered nor scheduled.
func (e *Event) Plain() bool { return e.Key == "" && e.At.IsZero() }

// Append appends the arguments of an event in the format of internal/lua/_events.lua. If head is true, they include the
// head.
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

// body is the body of an event as an argument. A pointer needs no allocation, but a slice would need one.
type body Event

// MarshalBinary implements encoding.BinaryMarshaler.
func (b *body) MarshalBinary() ([]byte, error) {
	if b.Reference != "" {
		return Stored([]byte(b.Reference), b.Given), nil
	}
	return Stored(b.Body, b.Given), nil
}

const givenMark = string(rune(lua.GivenMark))

// Stored returns a body in the format of the hash entries; see internal/lua/_body.lua.
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

// ReadEvent parses the arguments that Append has written.
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

// In a member of a lane, a NUL follows the key, so the key must not contain a NUL.
var (
	keyEscaper   = strings.NewReplacer("%", "%25", "\x00", "%00")
	keyUnescaper = strings.NewReplacer("%25", "%", "%00", "\x00")
)

func escapeKey(key string) string   { return keyEscaper.Replace(key) }
func unescapeKey(key string) string { return keyUnescaper.Replace(key) }
