package commit

import (
	"time"

	"github.com/luatx/luatx/internal/eval"
)

const (
	// stageFrom is the size from which a body goes around the script. Redis hashes and copies each byte that enters Lua.
	stageFrom = 8 << 10
	// stageGrace is how much longer the server keeps a body than the script may arrive. Clocks may differ.
	stageGrace = time.Minute
)

// stage lets large bodies go around the script. Each one is stored in a key of this run, with an expiry, in front of the script, which
// makes it permanent. The name of the key is that of no other run: its event may have another body. A copy of the command
// that arrives late changes nothing, because of NX, and what it leaves expires.
func (c *Commit) stage() {
	c.staged = false
	for i := range c.Events {
		if e := &c.Events[i]; len(e.Body) >= stageFrom {
			e.Stage(c.Digest+c.Token, i)
			c.staged = true
		}
	}
}

// unstage sends all bodies within the script.
func (c *Commit) unstage() {
	c.staged = false
	for i := range c.Events {
		c.Events[i].Reference = ""
	}
}

// stores appends the commands that store large bodies.
func (c *Commit) stores(commands [][]any) [][]any {
	if !c.staged {
		return commands
	}
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
	if !c.staged {
		return false
	}
	_, rows, err := eval.Timed(reply)
	if err != nil {
		return false
	}
	row := answer(rows, nth)
	return len(row) == 2 && State(eval.Word(row[0])) == Full && eval.Word(row[1]) == "body"
}
