package repair

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/shard"
)

// Kind is a way in which a shard can disagree with itself.
type Kind string

// What Check names. Fix settles the first eight; the others need a person.
const (
	// Orphan is a member of pending, parked or sent that has no body, a place in a lane of no event that waits there, or a
	// large body that no event has. It is removed.
	Orphan Kind = "orphan"
	// Unindexed is an event that is in no index. It goes back into pending, due at once; one that was sent back
	// into sent, for another retention. Or it is an event that is not in its lane, and is given its place there.
	Unindexed Kind = "unindexed"
	// Misplaced is a member of an index in which the event does not belong: what was sent belongs into sent alone,
	// what was not belongs into parked or into pending, and into parked where it is in both. It is removed.
	Misplaced Kind = "misplaced"
	// Leftover is a count of attempts, an error, a header, a route or a lease of an event that has no body any more,
	// or a lease of one that is not pending. It is removed.
	Leftover Kind = "leftover"
	// BadValue is a score, a count, a time or a flag that cannot be. It is removed, or set to now, or to the sum.
	BadValue Kind = "value"
	// Stale is a generation of the inbox or of the kept replies whose retention has passed. It is removed.
	Stale Kind = "stale"
	// Unlinked is an older generation of the inbox that nobody looks at, or a place in a lane that its event does not
	// know of, or a large body that is not in the index. It is linked: its ids count again, the event knows its lane.
	Unlinked Kind = "unlinked"
	// Lost is an event whose large body is gone. It is parked and marked as erased, because there is nothing to publish.
	Lost Kind = "lost"

	// WrongType is a key of another type than luatx gives it. It is left alone, and where it hides what belongs
	// together so are the keys that depend on it. Move it away, or delete it.
	WrongType Kind = "type"
	// Broken is a transaction whose undo failed: ID is the digest of its id, Detail what was left undone. Restore
	// that by hand.
	Broken Kind = "broken"
	// Foreign is a shard that another keyspace has written: Detail is its identity. Nothing else of it is looked
	// at. Repair it with a Transactor of its own configuration.
	Foreign Kind = shard.RepairForeign
)

// kinds says in words what is found, and what is done about it: done, or for what is left to a person, to do.
var kinds = map[Kind]struct{ found, done, todo string }{
	Orphan:    {found: "has no body", done: "removed"},
	Unindexed: {found: "was in no index", done: "added"},
	Misplaced: {found: "does not belong here", done: "removed"},
	Leftover:  {found: "is left over", done: "removed"},
	BadValue:  {found: "has a value that cannot be", done: "reset"},
	Stale:     {found: "is older than the retention", done: "removed"},
	Unlinked:  {found: "was not looked at", done: "linked"},
	Lost:      {found: "has lost its body", done: "marked as erased"},
	WrongType: {found: "has the wrong type", todo: "move it away or delete it"},
	Broken:    {found: "could not be undone", todo: "restore it by hand"},
	Foreign:   {found: "belongs to another keyspace", todo: "repair it with that one's configuration"},
}

// Fixable reports whether Fix settles findings of the kind.
func (k Kind) Fixable() bool { return kinds[k].done != "" }

// Finding is one disagreement.
type Finding struct {
	Slot int
	Kind Kind
	// Key is the shard's key that it is about, by its short name: entries, pending, inbox:a …
	Key string
	// ID is the event's; of a Broken one the digest of the transaction's id, in hex, or the scope, source and partition of its
	// position, separated by spaces; of a BadValue of the inbox or
	// of the replies the field. Empty where the whole key is meant.
	ID string
	// Detail says more: the value that cannot be, the type found, what was left undone.
	Detail string
	// Fixed: it is settled. False in a dry run.
	Fixed bool
}

// String returns a line for people.
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
