package shard

import (
	"slices"
	"strings"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/slot"
)

// The keys of a shard, under <namespace>:{<text of the slot>}: with the type and the meaning of each, for docs/keys.md.
const (
	keyVoid     = "void"      // none: never exists. While the slot migrates, a declared key that is missing makes the cluster answer TRYAGAIN before a script has begun
	keyInboxA   = "inbox:a"   // hash: digest of aggregate, scope, source and id → token of its commit, with ! behind it where its undo failed; id: start, tombstone horizon, layout, namespace and keyspace; tombstones
	keyInboxB   = "inbox:b"   // hash: the generation before it, until that is past the retention
	keyEntries  = "entries"   // hash: event → body, with + in front if the id was given; of a sent one = and the SHA-1 of its body, of an erased one ! and the SHA-1
	keyPending  = "pending"   // zset: event by when it is due (ms), half a millisecond more where its destination is paused; under a lease by the end of the lease minus 10^13, which is negative
	keyAttempts = "attempts"  // hash: event → attempts, beyond the first one
	keyErrors   = "errors"    // hash: event → its last five failures: time, attempt, class, text
	keyParked   = "parked"    // zset: event by when it was parked (ms)
	keySent     = "sent"      // zset: event whose id was given, by when it was sent (ms), until its retention is over; every event where bodies are kept
	keySeq      = "seq"       // string: the last number of a lease or a place in a lane
	keyBroken   = "broken"    // hash: digest of an id → what an undo that failed has left
	keyResults  = "results"   // hash: digest of an id → replies that were kept for a repeated call
	keyResultsB = "results:b" // hash: the generation before it
	keyDue      = "due"       // zset: subject of an open timer by when it is due (ms)
	keyDecided  = "decided"   // zset: what became of a timer, by when (ms), for the retention
	keyRepair   = "repair"    // hash: in the first shard: whose turn it is to repair, and how far the round is
	keyHeaders  = "headers"   // hash: ordered event → its place in its lane and its ordering key
	keyLanes    = "lanes"     // zset: escaped ordering key, NUL, place in 16 digits, NUL, event; all with one score
	keyCounts   = "counts"    // hash: totals: events and bytes that are neither sent nor parked, events ever enqueued, parked events and their bytes, idle if the last claim has left none that is due; counters since the beginning
	keyParkedBy = "parked:by" // hash: number of parked events by destination (d:), type (t:) and class (c:)
	keyRoutes   = "routes"    // hash: event → the destination that an operator has given it
	keyAudit    = "audit"     // stream: what operators did: who, when, why, which events

	keyProcesses  = "processes"  // hash: in the shard of slot 0: id of a running process → since when (ms), and what it last reported
	keyHeartbeats = "heartbeats" // zset: in the shard of slot 0: id of a process by its last heartbeat (ms); those without one for an hour are removed
)

// names lists the keys that business commands may not name; the ones that later layouts use are among them.
var names = []string{
	keyVoid, keyInboxA, keyInboxB, keyResults, keyResultsB, keyAudit, keyEntries, keyHeaders, keyPending, keyAttempts,
	keyErrors, keyParked, keySent, keyDue, keyDecided, keyLanes, keySeq, keyBroken, "stream",
	keyRepair, keyCounts, keyParkedBy, keyRoutes, keySweep, keyPauses, keyPlans, keyProcesses, keyHeartbeats,
}

// Shard is the library's own keys that live in a slot: a pointer, since there is one in all that is made of it.
type Shard struct{ *place }

type place struct {
	Slot int
	Void string // the key that never exists; it leads to the shard's node

	prefix string
	commit [CommitKeys]any // the keys of every commit, as arguments
}

// Shard returns the shard of a slot, which must be in [0, slot.Count).
func (s *Scripts) Shard(n int) Shard {
	if known := s.shards[n].Load(); known != nil {
		return Shard{known}
	}
	shard := Shard{&place{Slot: n, prefix: s.namespace + ":{" + slot.Text(n) + "}:"}}
	shard.Void = shard.Key(keyVoid)
	for i, key := range shard.keysOf("commit") {
		shard.commit[i] = key
	}
	if !s.shards[n].CompareAndSwap(nil, shard.place) {
		return Shard{s.shards[n].Load()} // somebody else's: with two, what is of one slot would not share a script
	}
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

// keysOf returns the keys that a script declares, in its order: see internal/lua/layout.go.
func (s Shard) keysOf(script string) []string { return s.keys(slices.Clone(lua.Keys(script))...) }

// CommitKeys is how many keys every commit has.
const CommitKeys = 7

// CommitKeys are the keys of every commit, as arguments.
func (s Shard) CommitKeys() []any { return s.commit[:] }

// EntranceKeys are the keys that events need to enter the outbox if they are not plain.
func (s Shard) EntranceKeys() [4]string {
	return [...]string{s.Key(keyHeaders), s.Key(keyLanes), s.Key(keySeq), s.Key(keyAttempts)}
}

// ResultKeys are the keys of kept replies.
func (s Shard) ResultKeys() [2]string { return [...]string{s.Key(keyResults), s.Key(keyResultsB)} }

// ResolveKeys are the keys that tell what became of a commit.
func (s Shard) ResolveKeys() []string { return s.keysOf("resolve") }

// ProbeKeys are the keys that a probe of the server names.
func (s Shard) ProbeKeys() []string { return s.keysOf("probe") }

// Owns reports whether a key is one of the shard's own.
func (s Shard) Owns(key string) bool {
	name, ok := strings.CutPrefix(key, s.prefix)
	return ok && slices.Contains(names, name)
}

// Own is a key of the shard as a recorded command names it: only luatx can.
type Own string

// MarshalBinary makes it an argument that can be sent.
func (o Own) MarshalBinary() ([]byte, error) { return []byte(o), nil }
