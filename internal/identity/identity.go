// Package identity identifies a message for the inbox, and derives the ids of its events.
package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// ID identifies a message within a namespace. Two messages are the same if all four fields are equal.
type ID struct {
	Aggregate, Scope, Source, ID string
}

// Digest returns the 16 bytes that the inbox stores for the message.
func (i ID) Digest() string {
	sum := i.sum()
	return string(sum[:16])
}

// EventID derives the id of the event at a position. The id is a UUID of version 8 (RFC 9562).
func (i ID) EventID(position int) string { return i.derived("event", position) }

// EntryID derives the id of the message at a position among the messages that a transaction adds to streams, like
// EventID.
func (i ID) EntryID(position int) string { return i.derived("entry", position) }

func (i ID) derived(kind string, position int) string {
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(position)) //nolint:gosec // a position is never negative
	sum := i.sum(kind, string(at[:]))
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

// sum hashes the fields and the parts. The length of each precedes it, so that no two lists result in the same bytes.
func (i ID) sum(parts ...string) [sha256.Size]byte {
	var few [512]byte
	all := few[:0]
	for _, part := range [...]string{i.Aggregate, i.Scope, i.Source, i.ID} {
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
