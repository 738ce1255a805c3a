package luatx

import (
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/lua"
)

// streamsLast moves XADDs to the end of a transaction, where no copy of the stream is needed to undo them: those
// that leave the id to the server, and whose stream no command names that stays behind them. Those that must stay
// are undone as any other command. It returns where each command was recorded; nil: where it stands.
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
		_, keys, _ := lay(args) // it has been laid before
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

// ran returns recorded commands in the order they ran, which is that of their replies.
func ran(cmds []redis.Cmder, order []int) []redis.Cmder {
	if order == nil {
		return cmds
	}
	sorted := make([]redis.Cmder, len(cmds))
	for i, recorded := range order {
		sorted[i] = cmds[recorded]
	}
	return sorted
}

// isXAdd reports whether a command is undone by the id of the entry it added.
func isXAdd(c commit.Command) bool { return c.Class() == lua.Appended }

func keyOf(arg any) string {
	key, _ := text(arg)
	return key
}
