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

// Sum is the hash of an ID. The inbox stores its first half, and the ids of events are derived from the second.
type Sum [sha256.Size]byte

// Sum hashes the fields. The length of each precedes it, so that no two IDs result in the same bytes.
func (i ID) Sum() Sum {
	var few [512]byte
	all := few[:0]
	for _, part := range [...]string{i.Aggregate, i.Scope, i.Source, i.ID} {
		all = append(binary.BigEndian.AppendUint64(all, uint64(len(part))), part...)
	}
	return sha256.Sum256(all)
}

// Digest returns the 16 bytes that the inbox stores for the message.
func (s Sum) Digest() string { return string(s[:16]) }

// EventID derives the id of the event at a position. The id is a UUID of version 8 (RFC 9562).
func (s Sum) EventID(position int) string { return s.derived(position) }

// EntryID derives the id of the message at a position among the messages that a transaction adds to streams, like
// EventID.
func (s Sum) EntryID(position int) string { return s.derived(^position) }

// derived returns the second half with the number in its last 6 bytes. Ids of one message thus differ.
func (s Sum) derived(number int) string {
	id := [16]byte(s[16:])
	for i := range 6 {
		id[15-i] ^= byte(number >> (8 * i))
	}
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	var few [36]byte
	text := hex.AppendEncode(few[:0], id[:4])
	for _, part := range [...][]byte{id[4:6], id[6:8], id[8:10], id[10:]} {
		text = hex.AppendEncode(append(text, '-'), part)
	}
	return string(text)
}
