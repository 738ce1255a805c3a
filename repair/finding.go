package repair

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/shard"
)

// Kind is a kind of inconsistency in a shard.
type Kind string

// The kinds of findings. Fix repairs the first eight; an operator has to resolve the others.
const (
	// Orphan is a member of pending, parked or sent without a body, a place in a lane whose event does not wait there, or a large
	// body without an event. Fix removes it.
	Orphan Kind = "orphan"
	// Unindexed is an event in no index, or an event that is missing in its lane. Fix adds it to pending, due at once, or to its
	// lane. It adds a published event to sent, for another retention.
	Unindexed Kind = "unindexed"
	// Misplaced is a member of an index to which its event does not belong: published events belong to sent only, others to
	// parked or pending, and to parked if they are in both. Fix removes it.
	Misplaced Kind = "misplaced"
	// Leftover is a count of attempts, an error, a header, a route or a lease of an event without a body, or a lease of an event
	// that is not pending. Fix removes it.
	Leftover Kind = "leftover"
	// BadValue is an invalid score, count, time or flag. Fix removes it, or sets it to the current time or to the correct sum.
	BadValue Kind = "value"
	// Stale is a generation of the inbox or of the stored replies whose retention has passed. Fix removes it. A newer generation
	// becomes the older one first.
	Stale Kind = "stale"
	// Unlinked is an older generation of the inbox that lookups skip, a place in a lane that its event does not refer to, or a
	// large body that is not in the index. Fix links it, so that the ids count again and the event knows its lane.
	Unlinked Kind = "unlinked"
	// Lost is an event whose large body is missing. Fix parks it and marks it as erased, because there is nothing to publish.
	Lost Kind = "lost"

	// WrongType is a key whose type luatx does not use. Fix changes neither this key nor the keys that it makes unreadable. Move
	// it away, or delete it.
	WrongType Kind = "type"
	// Broken is a transaction whose rollback failed. ID is the digest of its id, and Detail describes the remaining changes.
	// Restore them by hand.
	Broken Kind = "broken"
	// Foreign is a shard of another keyspace, with its identity in Detail. Nothing else in it is checked. Repair it with a
	// Transactor that has the configuration of that keyspace.
	Foreign Kind = shard.RepairForeign
)

// kinds describes each kind and its repair: done by Fix, or todo by an operator.
var kinds = map[Kind]struct{ found, done, todo string }{
	Orphan:    {found: "has no body", done: "removed"},
	Unindexed: {found: "is in no index", done: "added"},
	Misplaced: {found: "does not belong here", done: "removed"},
	Leftover:  {found: "is left over", done: "removed"},
	BadValue:  {found: "has an invalid value", done: "reset"},
	Stale:     {found: "is older than the retention", done: "removed"},
	Unlinked:  {found: "is not linked", done: "linked"},
	Lost:      {found: "has lost its body", done: "marked as erased"},
	WrongType: {found: "has the wrong type", todo: "move it away or delete it"},
	Broken:    {found: "was not rolled back", todo: "restore it by hand"},
	Foreign:   {found: "belongs to another keyspace", todo: "repair it with the configuration of that keyspace"},
}

// Fixable reports whether Fix repairs findings of the kind.
func (k Kind) Fixable() bool { return kinds[k].done != "" }

// Finding is one inconsistency.
type Finding struct {
	Slot int
	Kind Kind
	// Key is the short name of the shard's key, such as entries, pending or inbox:a.
	Key string
	// ID is the id of the event. For a Broken transaction it is the digest of its id, in hex, or the scope, source and partition of
	// its position, separated by spaces. For a BadValue of the inbox or of the replies it is the field. It is empty if the finding
	// is about the whole key.
	ID string
	// Detail has more information, such as the invalid value, the type, or the remaining changes.
	Detail string
	// Fixed means that the finding was repaired. It is false in a dry run.
	Fixed bool
}

// String returns a description of the finding in one line.
func (f Finding) String() string {
	what, words := f.Key, kinds[f.Kind]
	if f.ID != "" {
		what += fmt.Sprintf(" %q", f.ID)
	}
	line := fmt.Sprintf("slot %d: %s %s", f.Slot, what, words.found)
	if f.Detail != "" {
		line += fmt.Sprintf(" (%.200s)", f.Detail)
	}
	switch {
	case f.Fixed:
		return line + ": " + words.done
	case f.Kind.Fixable():
		return line + ": to be " + words.done
	}
	return line + ": " + words.todo
}

// digestSize is the size of the digest of an id.
const digestSize = 16

// brokenID returns a text for the field of a broken transaction: its digest, or the field of its position.
func brokenID(field string) string {
	if len(field) != digestSize || strings.Count(field, "\x00") == 2 && utf8.ValidString(field) {
		return strings.ReplaceAll(field, "\x00", " ")
	}
	return hex.EncodeToString([]byte(field))
}

func finding(slot int, f shard.RepairFinding) Finding {
	if Kind(f.Kind) == Broken {
		f.ID = brokenID(f.ID)
	}
	return Finding{slot, Kind(f.Kind), f.Key, f.ID, f.Detail, f.Fixed}
}
