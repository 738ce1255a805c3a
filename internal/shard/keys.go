package shard

import (
	"slices"
	"strings"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/slot"
)

// The keys of a shard, under <namespace>:{<text of the slot>}. The comments give the type and the meaning of each key
// for docs/keys.md.
const (
	keyVoid        = "void"        // none: never exists. While the slot migrates, a missing declared key makes the cluster return TRYAGAIN before the script runs
	keyInboxA      = "inbox:a"     // hash: digest of aggregate, scope, source and id → token of its commit, followed by ! if its undo failed. The field id holds the end, the start, the tombstone horizon, the layout, the namespace and the keyspace. Further fields are tombstones
	keyInboxB      = "inbox:b"     // hash: the previous generation of inbox:a, until its retention has passed
	keyEntries     = "entries"     // hash: event → body, preceded by + if the id was given. A sent event has = and the SHA-1 of its body, an erased one ! and the SHA-1
	keyPending     = "pending"     // zset: event, scored by the time at which it is due (ms), plus half a millisecond if its destination is paused. The score of a leased event is the end of its lease minus 10^13, which is negative
	keyAttempts    = "attempts"    // hash: event → attempts after the first one
	keyErrors      = "errors"      // hash: event → its last five failures: time, attempt, class, text
	keyParked      = "parked"      // zset: event, scored by the time at which it was parked (ms)
	keySent        = "sent"        // zset: event whose id was given, scored by the time at which it was sent (ms), until its retention has passed. If bodies are kept, every sent event
	keySeq         = "seq"         // string: the last number of a lease or of a place in a lane
	keyBroken      = "broken"      // hash: digest of an id, or field of a position → the commands that a failed undo has not undone
	keyResults     = "results"     // hash: digest of an id → the replies that are kept for a repeated call
	keyResultsB    = "results:b"   // hash: the previous generation of results
	keyDue         = "due"         // zset: subject of an open timer, scored by the time at which it is due (ms)
	keyDecided     = "decided"     // zset: outcome of a timer, scored by the time of the outcome (ms), for the retention
	keyRepair      = "repair"      // hash: in the first shard: the process whose turn it is to repair, and the position of the round
	keyHeaders     = "headers"     // hash: ordered event → its place in its lane and its ordering key
	keyLanes       = "lanes"       // zset: escaped ordering key, NUL, place in 16 digits, NUL, event; all with the same score
	keyCounts      = "counts"      // hash: bytes: size of the bodies of the events that are neither sent nor parked, plus 2^50 if the last claim left no due event, and plus 2^51 if there are parked events. parked_bytes: size of the bodies of parked events. left: number of events that have left the outbox, which is negative if more parked ones were imported. Other fields: counters since the beginning
	keyParkedBy    = "parked:by"   // hash: number of parked events by destination (d:), type (t:) and class (c:)
	keyRoutes      = "routes"      // hash: event → the destination that an operator has set
	keyAudit       = "audit"       // stream: the acts of operators: who, when, why, which events
	keyPositions   = "positions"   // hash: scope, source and partition of a source that keeps order, separated by NUL → token of the last commit, its offset, a space (! if its undo failed), the generation of its owner, a space and the epoch
	keyGenerations = "generations" // hash: in the first shard: scope, source and partition, separated by NUL → the last generation of an owner
	keyBodies      = "bodies"      // hash: name of a large body → its event. The body is the string body:<name>, which has an expiry until a commit adopts it

	keyProcesses  = "processes"  // hash: in the shard of slot 0: id of a running process → since when (ms), and what it last reported
	keyHeartbeats = "heartbeats" // zset: in the shard of slot 0: id of a process by its last heartbeat (ms); those without one for an hour are removed

	keyHistory    = "history"     // hash: in the shard of slot 0: the time at which a process last began to measure the outbox for the history (ms)
	keyHistory10s = "history:10s" // hash: in the shard of slot 0, followed by a colon and the number of an interval of 10 seconds since 1970: the counts of the interval, see the script history. It expires an hour after the interval
	keyHistory15m = "history:15m" // hash: the same of 15 minutes. It expires 30 days after the interval
)

// historyPrefix begins the names of the intervals of the history.
const historyPrefix = keyHistory + ":"

// bodyPrefix begins the names of the keys of large bodies.
const bodyPrefix = "body:"

// names lists the keys that business commands may not use, including those that later layouts use.
var names = []string{
	keyVoid, keyInboxA, keyInboxB, keyResults, keyResultsB, keyAudit, keyEntries, keyHeaders, keyPending, keyAttempts,
	keyErrors, keyParked, keySent, keyDue, keyDecided, keyLanes, keySeq, keyBroken, "stream",
	keyRepair, keyCounts, keyParkedBy, keyRoutes, keySweep, keyPauses, keyPlans, keyProcesses, keyHeartbeats,
	keyBodies, keyHistory, keyPositions, keyGenerations,
}

// Shard gives the names of the library's own keys in a slot. It is a pointer, because each shard is created only once.
type Shard struct{ *place }

type place struct {
	Slot int
	Void string // the key that never exists; it determines the node of the shard

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
		return Shard{s.shards[n].Load()} // another goroutine's: calls with two pointers for one slot would not share a script
	}
	return shard
}

// Key returns the key with the given name.
func (s Shard) Key(name string) string { return s.prefix + name }

func (s Shard) keys(names ...string) []string {
	for i, name := range names {
		names[i] = s.prefix + name
	}
	return names
}

// keysOf returns the keys that a script declares, in the order of internal/lua/layout.go.
func (s Shard) keysOf(script string) []string { return s.keys(slices.Clone(lua.Keys(script))...) }

// CommitKeys is the number of keys that every commit has.
const CommitKeys = 7

// CommitKeys returns the keys that every commit has, as arguments.
func (s Shard) CommitKeys() []any { return s.commit[:] }

// EntranceKeys returns the keys that a script needs to add events to the outbox if they are not plain.
func (s Shard) EntranceKeys() [4]string {
	return [...]string{s.Key(keyHeaders), s.Key(keyLanes), s.Key(keySeq), s.Key(keyAttempts)}
}

// ResultKeys returns the keys of kept replies.
func (s Shard) ResultKeys() [2]string { return [...]string{s.Key(keyResults), s.Key(keyResultsB)} }

// PositionsKey returns the key of the positions.
func (s Shard) PositionsKey() string { return s.Key(keyPositions) }

// ResolveKeys returns the keys that a script needs to find the outcome of a commit.
func (s Shard) ResolveKeys() []string { return s.keysOf("resolve") }

// ProbeKeys returns the keys that the probe of the server needs.
func (s Shard) ProbeKeys() []string { return s.keysOf("probe") }

// BodyKey returns the key of a large body. The last part of the reference names the body.
func (s Shard) BodyKey(reference string) string {
	return s.Key(bodyPrefix + reference[strings.LastIndexByte(reference, ' ')+1:])
}

// Owns reports whether a key belongs to the library's own keys of the shard.
func (s Shard) Owns(key string) bool {
	name, ok := strings.CutPrefix(key, s.prefix)
	return ok && isName(name)
}

func isName(name string) bool {
	return slices.Contains(names, name) || strings.HasPrefix(name, bodyPrefix) || strings.HasPrefix(name, historyPrefix)
}

// InboxOf returns the key of the inbox that exists if the key belongs to a shard. It returns false if the key cannot belong to a
// shard of any namespace.
func InboxOf(key string) (string, bool) {
	prefix, name, ok := strings.Cut(key, "}:")
	inbox := prefix + "}" + InboxSuffix
	_, named := NamespaceOf(inbox)
	return inbox, ok && named && isName(name)
}

// Own is one of the shard's own keys in a recorded command. Only luatx can record a command with such a key.
type Own string

// MarshalBinary returns the key as an argument that can be sent.
func (o Own) MarshalBinary() ([]byte, error) { return []byte(o), nil }
