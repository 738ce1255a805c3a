package luatx

import (
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/lua"
)

// arrange orders the commands so that their undo is cheapest. Commands that name the same key keep their order. If the
// transaction keeps its replies, the order does not depend on the number of arguments, which may differ in a repeated call.
func (tx *Tx) arrange() {
	out := &tx.commit
	out.Commands, out.Order = streamsLast(tx.cmds, out.Commands)
	if tx.keep {
		return
	}
	if last := dearest(out.Commands); last >= 0 {
		out.Order = tx.few.order[:0]
		for i := range out.Commands {
			if i != last {
				out.Order = append(out.Order, i)
			}
		}
		out.Order = append(out.Order, last)
		moved := out.Commands[last]
		copy(out.Commands[last:], out.Commands[last+1:])
		out.Commands[len(out.Commands)-1] = moved
	}
}

// ran returns the recorded commands in the order in which they ran, which is the order of their replies.
func (tx *Tx) ran() []redis.Cmder {
	if tx.commit.Order == nil {
		return tx.cmds
	}
	sorted := tx.few.ran[:0]
	for _, recorded := range tx.commit.Order {
		sorted = append(sorted, tx.cmds[recorded])
	}
	return sorted
}

// dearest returns the index of the command whose undo costs most. If that command runs last, it needs no undo, because a
// command that fails changes nothing. dearest considers only commands that may swap places with all commands behind them. It
// returns -1 if the command with the highest cost is already the last one.
func dearest(commands []commit.Command) int {
	end := len(commands) - 1
	if end < 1 || undoCost(commands[end]) == 0 {
		return -1
	}
	best := end
	for i := end - 1; i >= 0 && undoCost(commands[i]) > 0; i-- {
		key := keyOf(commands[i].Args[1])
		same := func(c commit.Command) bool { return keyOf(c.Args[1]) == key }
		if undoCost(commands[i]) > undoCost(commands[best]) && !slices.ContainsFunc(commands[i+1:], same) {
			best = i
		}
	}
	if best == end {
		return -1
	}
	return best
}

// undoCost returns about how many thousand instructions the server needs to save what a command changes. It returns 0 for a
// command that may use other keys than its first argument, and so must keep its place.
func undoCost(c commit.Command) int {
	if c.Head[1] != '0' { // PFCOUNT also reads other keys
		return 0
	}
	switch c.Class() {
	case lua.HashFields:
		return 3 + len(c.Args)
	case lua.ReplacedString:
		return 9
	case lua.ChangedString:
		return 5
	}
	return 0
}

// streamsLast moves XADDs to the end of a transaction, where their undo needs no copy of the stream. It moves an XADD only if
// the server chooses the entry's id and no later command that stays in place names the stream. It returns the position at
// which each command was recorded, or nil if nothing moved.
func streamsLast(cmds []redis.Cmder, commands []commit.Command) ([]commit.Command, []int) {
	last := len(commands) - 1
	for last >= 0 && isXAdd(commands[last]) {
		last--
	}
	if !slices.ContainsFunc(commands[:last+1], isXAdd) {
		return commands, nil
	}
	moves := 0
	named := make(map[string]bool)
	for i := last; i >= 0; i-- {
		args := cmds[i].Args()
		if xadd := isXAdd(commands[i]); xadd && !named[keyOf(args[1])] {
			moves++
			continue
		} else if xadd {
			commands[i].Head = "d1" + strings.TrimPrefix(commands[i].Head, "x0")
		}
		_, keys, _ := lay(args) // cannot fail: lay has accepted the command before
		for _, at := range keys {
			named[keyOf(args[at])] = true
		}
	}
	if moves == 0 {
		return commands, nil
	}
	return reordered(commands)
}

func reordered(commands []commit.Command) ([]commit.Command, []int) {
	sorted, order := make([]commit.Command, 0, len(commands)), make([]int, 0, len(commands))
	for _, xadds := range []bool{false, true} {
		for i, c := range commands {
			if isXAdd(c) == xadds {
				sorted, order = append(sorted, c), append(order, i)
			}
		}
	}
	return sorted, order
}

// isXAdd reports whether a command is undone by deleting the entry that it added.
func isXAdd(c commit.Command) bool { return c.Class() == lua.Appended }

func keyOf(arg any) string {
	key, _ := textOf(arg)
	return key
}
