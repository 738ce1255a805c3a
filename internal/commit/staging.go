package commit

import (
	"slices"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
)

const (
	// stageFrom is the size from which a body goes around the script. Redis hashes and copies each byte that enters Lua.
	stageFrom = 32 << 10
	// stageGrace is how much longer the server keeps a body than the script may arrive. Clocks may differ.
	stageGrace = time.Minute
)

// stage lets large bodies go around the script. Each one is stored in a key of this run, with an expiry, in front of the script, which
// makes it permanent. The name of the key is that of no other run: its event may have another body. A copy of the command
// that arrives late changes nothing, because of NX, and what it leaves expires.
func (c *Commit) stage() {
	for i := range c.Events {
		if e := &c.Events[i]; len(e.Body) >= stageFrom {
			e.Stage(c.Digest+c.Token, i)
		}
	}
}

// staged reports whether an event has its body in a key of its own.
func (c *Commit) staged() bool {
	return slices.ContainsFunc(c.Events, func(e shard.Event) bool { return e.Reference != "" })
}

// unstage sends all bodies within the script, and reports whether that changes anything.
func (c *Commit) unstage() bool {
	staged := c.staged()
	for i := range c.Events {
		c.Events[i].Reference = ""
	}
	return staged
}

// stores appends the commands that store large bodies.
func (c *Commit) stores(commands [][]any) [][]any {
	left := max(0, time.Until(c.NotAfter)) + stageGrace
	for i := range c.Events {
		if e := &c.Events[i]; e.Reference != "" {
			commands = append(commands, []any{"set", c.Shard.BodyKey(e.Reference), e.Body, "px", left.Milliseconds(), "nx"})
		}
	}
	return commands
}

// bodyGone reports whether commit.lua did nothing because a large body was not there: the server may have evicted it, or
// refused to store it.
func (c *Commit) bodyGone(reply any, nth int) bool {
	if !c.staged() {
		return false
	}
	_, rows, err := eval.Timed(reply)
	if err != nil {
		return false
	}
	row := answer(rows, nth)
	return len(row) == 2 && State(eval.Word(row[0])) == Full && eval.Word(row[1]) == "body"
}
