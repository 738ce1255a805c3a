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
	h := sha256.New()
	for _, part := range append([]string{m.Scope, m.Source, m.ID}, parts...) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// digest is the field of the inbox.
func (m MessageID) digest() string {
	sum := m.sum()
	return string(sum[:16])
}

// eventID derives the id of the event at a position: a UUID of version 8 (RFC 9562).
func (m MessageID) eventID(index int) string {
	sum := m.sum("event", string(binary.BigEndian.AppendUint64(nil, uint64(index)))) //nolint:gosec // an index is never negative
	id := [16]byte(sum[:16])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	text := hex.EncodeToString(id[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// delivery is one delivery of a message, or one call: its token's base is kept across the runs of the handler,
// and every run commits under a token of its own. A late copy of one run must not pass for another.
type delivery struct {
	base [8]byte
	runs uint16
	msg  *message.Message // nil for a call
}

func newDelivery(msg *message.Message) *delivery {
	d := &delivery{msg: msg}
	_, _ = rand.Read(d.base[:]) // never fails: crypto/rand ends the process instead
	return d
}

// token returns the token of the next run.
func (d *delivery) token() string {
	d.runs++
	return string(binary.BigEndian.AppendUint16(d.base[:len(d.base):len(d.base)], d.runs))
}
