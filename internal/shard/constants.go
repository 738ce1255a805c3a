package shard

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/lua"
)

// Constants are set once for a Transactor. The text of its scripts contains them.
type Constants struct {
	Namespace   string        // the beginning of every key of a shard
	Identity    string        // layout, namespace and keyspace; scripts reject a shard with another identity
	Retention   time.Duration // of the inbox
	Capacity    int           // events of a shard that are neither sent nor parked
	Bytes       int           // bytes of the bodies of these events
	Parked      int           // parked events beyond which a shard accepts no more events
	ParkedBytes int           // bytes of the bodies of parked events beyond which a shard accepts no more events
	Lane        int           // events of a lane
	UndoBytes   int           // the size of the largest key that is saved with DUMP for an undo
	KeptBytes   int           // maximum bytes of replies that are kept for one transaction
	Guarded     int           // maximum size of the guarded reads of one transaction, as counted in internal/lua/_guard.lua

	Durability eval.Durability

	Budget   int    // maximum calls in one run of a procedure
	Commands string // the commands that procedures may call, in the format of internal/lua/_procedure.lua
}

// keptCount is the maximum number of transactions whose replies are kept in one generation.
const keptCount = 100_000

// Script returns the text of a script with the constants in it. A constant in the text needs less CPU time than a
// local.
func (c Constants) Script(name string) string { return lua.Script(name, c.texts()) }

// Substitute inserts the constants, and the keys of a script, into a text that was generated for it.
func (c Constants) Substitute(text string, keys []string) string {
	return lua.Substitute(text, keys, c.texts())
}

func (c Constants) texts() map[string]string {
	return map[string]string{
		"IDENTITY":        Quote(c.Identity),
		"ONE_GENERATION":  Quote("00000000000000" + c.Identity), // the field id behind the start, see internal/lua/_meta.lua
		"TWO_GENERATIONS": Quote("10000000000000" + c.Identity),
		"RETENTION":       strconv.FormatInt(c.Retention.Milliseconds(), 10),
		"PARKED_CAPACITY": strconv.Itoa(c.Parked),
		"PARKED_BYTES":    strconv.Itoa(c.ParkedBytes),
		"LANE_CAPACITY":   strconv.Itoa(c.Lane),
		"CAPACITY":        strconv.Itoa(c.Capacity),
		"OUTBOX_BYTES":    strconv.Itoa(c.Bytes),
		"ROOM":            strconv.Itoa(min(c.Capacity, c.Bytes)), // with fewer bytes, there is room for more events
		"UNDO_BYTES":      strconv.Itoa(c.UndoBytes),
		"KEPT_BYTES":      strconv.Itoa(c.KeptBytes),
		"GUARD_BYTES":     strconv.Itoa(c.Guarded),
		"KEPT_COUNT":      strconv.Itoa(keptCount),
		"DURABLE":         strconv.FormatBool(c.Durability.On()),
		"BUDGET":          strconv.Itoa(c.Budget),
		"COMMANDS":        Quote(c.Commands),
	}
}

// Quote returns a Lua string literal.
func Quote(s string) string {
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
