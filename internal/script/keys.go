package script

import (
	"slices"
	"strings"

	"github.com/luatx/luatx/internal/slot"
)

// The keys of a shard, under <namespace>:{<text of the slot>}:
const (
	keyVoid     = "void"
	keyInboxA   = "inbox:a"
	keyInboxB   = "inbox:b"
	keyEntries  = "entries"
	keyPending  = "pending"
	keyAttempts = "attempts"
	keyErrors   = "errors"
	keyLeases   = "leases"
	keyParked   = "parked"
	keySent     = "sent"
	keySeq      = "seq"
	keyBroken   = "broken"
	keyResults  = "results"
	keyResultsB = "results:b"
	keyDue      = "due"
	keyDecided  = "decided"
	keyRepair   = "repair"
	keyHeaders  = "headers"
	keyLanes    = "lanes"
	keyCounts   = "counts"
	keyParkedBy = "parked:by"
	keyRoutes   = "routes"
	keyAudit    = "audit"
)

// names lists the keys that business commands may not name; the ones that later layouts use are among them.
var names = []string{
	keyVoid, keyInboxA, keyInboxB, keyResults, keyResultsB, keyAudit, keyEntries, keyHeaders, keyPending, keyAttempts,
	keyErrors, keyLeases, keyParked, keySent, keyDue, keyDecided, keyLanes, keySeq, keyBroken, "stream",
	keyRepair, keyCounts, keyParkedBy, keyRoutes, keySweep, keyPauses,
}

// Shard is the library's own keys that live in a slot: a pointer, since there is one in all that is made of it.
type Shard struct{ *place }

type place struct {
	Slot   int
	prefix string
	commit [commitKeys]any // the keys of every commit, as arguments
}

// Shard returns the shard of a slot, which must be in [0, slot.Count).
func (s *Set) Shard(n int) Shard {
	if known := s.shards[n].Load(); known != nil {
		return Shard{known}
	}
	shard := Shard{&place{Slot: n, prefix: s.namespace + ":{" + slot.Text(n) + "}:"}}
	for i, key := range shard.keys(keyVoid, keyInboxA, keyInboxB, keyEntries, keyPending, keyBroken, keyCounts) {
		shard.commit[i] = key
	}
	s.shards[n].Store(shard.place)
	return shard
}

// Key returns the key of that name.
func (s Shard) Key(name string) string { return s.prefix + name }

func (s Shard) keys(names ...string) []string {
	for i, name := range names {
		names[i] = s.prefix + name
	}
	return names
}

// outboxKeys are those that lua/_outbox.lua names, the void first.
func (s Shard) outboxKeys() []string {
	return s.keys(keyVoid, keyInboxA, keyEntries, keyPending, keyAttempts, keyLeases, keyErrors, keyParked, keySent, keySeq,
		keyCounts, keyParkedBy, keyRoutes, keyHeaders, keyLanes)
}

// entrance is what events that are not plain need to enter the outbox.
var entrance = [...]string{keyHeaders, keyLanes, keySeq, keyAttempts}

// entranceKeys are the keys of the entrance.
func (s Shard) entranceKeys() []string {
	names := entrance
	return s.keys(names[:]...)
}

// Owns reports whether a key is one of the shard's own.
func (s Shard) Owns(key string) bool {
	name, ok := strings.CutPrefix(key, s.prefix)
	return ok && slices.Contains(names, name)
}

// Own is a key of the shard as a recorded command names it: only luatx can.
type Own string

// MarshalBinary makes it an argument that can be sent.
func (o Own) MarshalBinary() ([]byte, error) { return []byte(o), nil }
