package commit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatx/luatx/internal/command"
)

// A compiled script is internal/lua/commit.lua for one plan, which its arguments need not contain. It has the same
// steps in the same order, and passes every transaction that it does not handle to commit.lua:
//
//   - Before its first write, it returns 0. No transaction of the call was changed.
//   - After that, it undoes the transaction and returns -1 as its flags.
//
// The text contains only names of commands and numbers. Keys, fields and values are arguments; see pack. testdata has
// examples.
//
//	KEYS  void, inbox:a, then positions if the transactions move one, then entries, pending and counts if there are events, then the stream of the input
//	      and its note of takeovers if there is one, then for each transaction the key of each command
//	ARGV  the group of the input if there is one, the earliest deadline (13 digits, ms) with the consumer of the input behind it,
//	      then for each transaction digest (or the field of its position), token, entry of the input if there is one, offset, after
//	      and owner of its position if there is one (see internal/lua/_position.lua), for each event its id and its body, and for
//	      each command its arguments behind the key
//	reply time (ms, a number), then for each transaction its flags, as in commit.lua, and the reply of each command

// Larger plans are not compiled, because Lua limits a function to 200 locals and a call to about 250 arguments.
const (
	maxSteps    = 24
	maxStepArgs = 64
	maxEvents   = 16

	leave   = "return 0"
	offPath = "'off the path of the plan'"
)

// shape contains everything that determines the text of a compiled script.
type shape struct {
	positioned bool // each moves a position instead of marking an id
	ack        Ack
	delay      int64 // ms
	events     int
	steps      []step
}

// step is a command: its name, its undo class, and the number of arguments after its key.
type step struct {
	name  string
	class byte
	args  int
}

// inlined contains the undo classes that a compiled script supports.
const inlined = "-hik"

// shapeOf returns the shape of a commit, and false if only commit.lua can handle it.
func shapeOf(c *Commit) (shape, bool) {
	s := shape{positioned: c.Position != nil, ack: c.Input.Ack, delay: c.Delay.Milliseconds(), events: len(c.Events)}
	if c.Keep || c.Input.Strict || c.staged || len(c.Guards) > 0 || !c.plainEvents() || s.events > maxEvents || len(c.Commands) > maxSteps {
		return s, false
	}
	for _, recorded := range c.Commands {
		if !strings.ContainsRune(inlined, rune(recorded.Class())) || len(recorded.Args) > maxStepArgs {
			return s, false
		}
		spec, err := command.Lookup(recorded.Args)
		if err != nil || strings.Contains(spec.Name, " ") {
			return s, false
		}
		if keys, err := spec.Keys(recorded.Args); err != nil || !slices.Equal(keys, []int{1}) {
			return s, false
		}
		s.steps = append(s.steps, step{spec.Name, recorded.Class(), len(recorded.Args) - 2})
	}
	return s, true
}

// String returns a readable description of the shape.
func (s shape) String() string {
	var parts []string
	if s.positioned {
		parts = append(parts, "position")
	}
	switch s.ack {
	case AckFence:
		parts = append(parts, "fenced input")
	case AckFused:
		parts = append(parts, "fenced and acknowledged input")
	case AckNone:
	}
	if s.events > 0 {
		parts = append(parts, fmt.Sprintf("%d events after %d ms", s.events, s.delay))
	}
	for _, step := range s.steps {
		parts = append(parts, fmt.Sprintf("%s with %d arguments", step.name, step.args+1))
	}
	return strings.Join(parts, ", ")
}

// The keys of a compiled script that precede the keys of its transactions.
var (
	inboxKeys    = []string{"void", "inbox:a"}
	positionKeys = []string{"positions"}
	outboxKeys   = []string{"entries", "pending", "counts"}
	sourceKeys   = []string{"stream", "taken"}
)

func (s shape) keys() []string {
	keys := slices.Clone(inboxKeys)
	if s.positioned {
		keys = append(keys, positionKeys...)
	}
	if s.events > 0 {
		keys = append(keys, outboxKeys...)
	}
	if s.ack != AckNone {
		keys = append(keys, sourceKeys...)
	}
	return keys
}

// keyCount returns the number of keys, without listing them for each commit.
func (s shape) keyCount() int {
	n := len(inboxKeys)
	if s.positioned {
		n += len(positionKeys)
	}
	if s.events > 0 {
		n += len(outboxKeys)
	}
	if s.ack != AckNone {
		n += len(sourceKeys)
	}
	return n
}

// head returns the number of arguments before the arguments of the transactions.
func (s shape) head() int {
	if s.ack == AckNone {
		return 1
	}
	return 2
}

// width returns the number of arguments of a transaction.
func (s shape) width() int {
	n := s.firstStep()
	for _, step := range s.steps {
		n += step.args
	}
	return n - 1
}

// The positions of a transaction's arguments, from 1.
const (
	argDigest = 1 + iota // or the field of the position
	argToken
	argEntry // if there is an input
)

// firstPlace returns the position of the offset if the transaction has a position. The offset that must be committed
// and the owner follow it.
func (s shape) firstPlace() int {
	if s.ack == AckNone {
		return argEntry
	}
	return argEntry + 1
}

func (s shape) firstEvent() int {
	if s.positioned {
		return s.firstPlace() + positionArgs - 1 // the field replaces the digest
	}
	return s.firstPlace()
}

func (s shape) firstStep() int { return s.firstEvent() + 2*s.events }
