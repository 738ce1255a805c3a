// Package script runs the Lua scripts of luatx: one Go method a script, each an atomic step on one slot.
package script

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script
	"encoding/hex"
	"fmt"
	"iter"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/lua"
)

// Constants are set once for a Set and stand in the text of its scripts.
type Constants struct {
	Namespace   string        // leads every key of a shard
	Identity    string        // layout, namespace and keyspace; scripts refuse a shard that holds another
	Retention   time.Duration // of the inbox
	Capacity    int           // events of a shard that are neither sent nor parked
	Bytes       int           // of their bodies
	Parked      int           // parked events of a shard beyond which it takes no more events
	ParkedBytes int           // bytes of their bodies beyond which it takes no more events
	Lane        int           // events of a lane
	UndoBytes   int           // the largest key that is kept by DUMP for an undo
	KeptBytes   int           // the most bytes of replies that one transaction keeps
	Guarded     int           // what the guarded reads of one transaction may count, see lua/_guard.lua

	Durability Durability

	Procedures []Procedure
	Budget     int    // the most calls of one run of a procedure
	Commands   string // those that procedures may call, as lua/_procedure.lua reads them
}

// keptCount is the most transactions whose replies are kept in one generation.
const keptCount = 100_000

// in puts the constants into the text of a script, in the place of their names: a local would cost every function
// that uses it.
func (c Constants) in(text string) string {
	return strings.NewReplacer(
		"IDENTITY", quote(c.Identity),
		"RETENTION", strconv.FormatInt(c.Retention.Milliseconds(), 10),
		"PARKED_CAPACITY", strconv.Itoa(c.Parked),
		"PARKED_BYTES", strconv.Itoa(c.ParkedBytes),
		"LANE_CAPACITY", strconv.Itoa(c.Lane),
		"CAPACITY", strconv.Itoa(c.Capacity),
		"OUTBOX_BYTES", strconv.Itoa(c.Bytes),
		"UNDO_BYTES", strconv.Itoa(c.UndoBytes),
		"KEPT_BYTES", strconv.Itoa(c.KeptBytes),
		"GUARD_BYTES", strconv.Itoa(c.Guarded),
		"KEPT_COUNT", strconv.Itoa(keptCount),
		"DURABLE", strconv.FormatBool(c.Durability.On()),
		"BUDGET", strconv.Itoa(c.Budget),
		"COMMANDS", quote(c.Commands),
	).Replace(text)
}

// quote makes a Lua string literal.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for i := range len(s) {
		if c := s[i]; c == '\'' || c == '\\' || c < ' ' || c > '~' {
			fmt.Fprintf(&b, "\\%03d", c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// source is one script, complete.
type source struct {
	name, text, sha string
	argument        any // the sha
}

func newSource(name, text string) source {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	sha := hex.EncodeToString(sum[:])
	return source{name, text, sha, sha}
}

// Set is the scripts with their constants, and the client that runs them.
type Set struct {
	client     redis.UniversalClient
	log        *slog.Logger
	namespace  string
	identity   string
	durability Durability
	queue      *queue
	plans      plans
	wakes      wakes
	shards     [slot.Count]atomic.Pointer[place] // those that were asked for
	warned     atomic.Bool                       // that Durability cannot be had

	commit, resolve, read, probe           source
	enqueue, scheduled, claim, settle      source
	rearm, discard, erase, replay, imports source
	list                                   source
	timer, due, decide, revoke             source
	repair, turn                           source
	sweep, extend                          source
	forget, rights                         source
	pause, resume, pauses, unhold          source

	stringsOnly atomic.Bool // what Probe found: other keys cannot be restored whole
}

// New composes the scripts. It does no I/O.
func New(client redis.UniversalClient, c Constants, log *slog.Logger) *Set {
	s := &Set{
		client:     client,
		log:        log,
		namespace:  c.Namespace,
		identity:   c.Identity,
		durability: c.Durability,
		commit:     newSource("commit", c.procedures()+c.in(commitText)),
		resolve:    newSource("resolve", c.in(lua.Source("_time", "_inbox", "resolve"))),
		read:       newSource("read", c.in(lua.Source("_reply", "_guard", "read"))),
		claim:      newSource("claim", c.in(onOutbox("claim"))),
		settle:     newSource("settle", c.in(onOutbox("settle"))),
		rearm:      newSource("rearm", c.in(onOutbox("_owned", "_audit", "rearm"))),
		discard:    newSource("discard", c.in(onOutbox("_owned", "_audit", "discard"))),
		erase:      newSource("erase", c.in(onOutbox("_owned", "_audit", "erase"))),
		replay:     newSource("replay", c.in(onOutbox("_owned", "_audit", "replay"))),
		imports:    newSource("import", c.in(onOutbox("_owned", "_audit", "import"))),
		list:       newSource("list", c.in(onOutbox("list"))),
		enqueue:    newSource("enqueue", c.in(enqueueText)),
		scheduled:  newSource("scheduled", c.in(onOutbox("scheduled"))),
		probe:      newSource("probe", lua.Source("probe")),
		timer:      newSource("timer", c.in(lua.Source("_time", "_timers", "timer"))),
		due:        newSource("due", c.in(lua.Source("_time", "due"))),
		decide:     newSource("decide", c.in(lua.Source("_time", "_events", "_timers", "decide"))),
		revoke:     newSource("revoke", c.in(lua.Source("_time", "_events", "_timers", "revoke"))),
		repair: newSource("repair", c.in(lua.Source("_time", "_full", "_outbox", "_lanes", "_errors", "_park",
			"_repair", "_repair_inbox", "_repair_counts", "_repair_outbox", "repair"))),
		turn:   newSource("turn", lua.Source("_time", "_full", "turn")),
		sweep:  newSource("sweep", lua.Source("_time", "_full", "sweep")),
		extend: newSource("extend", lua.Source("_time", "_full", "extend")),
		forget: newSource("forget", c.in(lua.Source("_time", "_outbox", "_owned", "_audit", "forget"))),
		rights: newSource("rights", lua.Source("rights")),
		pause:  newSource("pause", c.in(lua.Source("_time", "_full", "_outbox", "_owned", "_audit", "pause"))),
		resume: newSource("resume", c.in(lua.Source("_time", "_full", "_outbox", "_owned", "_audit", "resume"))),
		pauses: newSource("pauses", lua.Source("_time", "pauses")),
		unhold: newSource("unhold", lua.Source("_time", "_full", "unhold")),
	}
	s.queue = &queue{set: s, lanes: make(map[string]*lane)}
	s.wakes.set = s
	return s
}

func (s *Set) all() []source {
	return []source{
		s.commit, s.resolve, s.read, s.probe,
		s.enqueue, s.scheduled, s.claim, s.settle,
		s.rearm, s.discard, s.erase, s.replay, s.imports, s.list,
		s.timer, s.due, s.decide, s.revoke,
		s.repair, s.turn,
		s.sweep, s.extend,
		s.forget, s.rights,
		s.pause, s.resume, s.pauses, s.unhold,
	}
}

// SHAs lists the scripts' names and hashes.
func (s *Set) SHAs() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, script := range s.all() {
			if !yield(script.name, script.sha) {
				return
			}
		}
	}
}
