package commit

import (
	"time"

	"github.com/luatx/luatx/internal/eval"
)

const (
	// stageFrom is the size in bytes from which a body bypasses the script. Redis hashes and copies each byte that
	// enters Lua.
	stageFrom = 8 << 10
	// stageGrace is the time for which the server keeps a body after the last moment at which the script may arrive.
	// Clocks may differ.
	stageGrace = time.Minute
)

// stage lets large bodies bypass the script. A command before the script stores each body in a key with an expiry, and
// the script makes the key permanent. The name of the key is unique to this run, because another run may have another
// body. A copy of the command that arrives late changes no existing key, because of NX, and a key that it creates
// expires.
func (c *Commit) stage() {
	c.staged = false
	for i := range c.Events {
		if e := &c.Events[i]; len(e.Body) >= stageFrom {
			e.Stage(c.Digest+c.Token, i)
			c.staged = true
		}
	}
}

// unstage sends all bodies as arguments of the script.
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

// bodyGone reports whether commit.lua did nothing because a large body was missing. The server may have evicted the
// body, or may have refused to store it.
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
