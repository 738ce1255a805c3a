package luatx

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/luatx/luatx/message"
)

// Event is a message on its way out: it becomes visible with its transaction, and waits in the outbox until a
// relay has published it.
type Event struct {
	// ID is unique; the same id with another body is refused. Empty: derived from the transaction's id and the
	// event's position, so that a replay makes the same event.
	ID string
	// Body is the encoded message. Package outbox encodes and decodes it.
	Body []byte
}

// MessageID names a message for the inbox. Two messages are the same where all three agree, within one shard:
// the same id under another aggregate is another message.
type MessageID struct {
	// Scope names the service and its handler: each handler of a message applies it once.
	Scope string
	// Source and ID identify the message, as CloudEvents say.
	Source, ID string
}

// sum hashes the parts, each with its length before it, so that no two lists of parts look alike.
func (m MessageID) sum(parts ...string) [sha256.Size]byte {
	var few [256]byte
	all := few[:0]
	for _, part := range [...]string{m.Scope, m.Source, m.ID} {
		all = appendPart(all, part)
	}
	for _, part := range parts {
		all = appendPart(all, part)
	}
	return sha256.Sum256(all)
}

func appendPart(b []byte, part string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
	return append(b, part...)
}

// digest is the field of the inbox.
func (m MessageID) digest() string {
	sum := m.sum()
	return string(sum[:16])
}

// eventID derives the id of the event at a position: a UUID of version 8 (RFC 9562).
func (m MessageID) eventID(index int) string {
	var position [8]byte
	binary.BigEndian.PutUint64(position[:], uint64(index)) //nolint:gosec // an index is never negative
	sum := m.sum("event", string(position[:]))
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	var few [36]byte
	text := hex.AppendEncode(few[:0], id[:4])
	for _, part := range [...][]byte{id[4:6], id[6:8], id[8:10], id[10:]} {
		text = hex.AppendEncode(append(text, '-'), part)
	}
	return string(text)
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
