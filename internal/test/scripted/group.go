package scripted

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrNoGroup is the error that a server returns for a group that does not exist.
var ErrNoGroup = errors.New("NOGROUP no such group")

// Usual is the answer that a Group gives by itself.
const Usual = Status("the usual")

// GroupScripts are the scripts of package group.
var GroupScripts = []string{"acknowledge", "deadletter", "dismiss", "fetch", "hold", "takeover"}

// Group answers a consumer of a group of the stream s. Unless a test says otherwise nothing is pending and nothing new, each entry that
// is asked for is there, for the second time, and each operation works.
type Group struct {
	// Own and All are rows of XPENDING: the pending entries of the consumer itself, and of all
	// consumers.
	Own, All []any
	// Fresh are new entries.
	Fresh []any
	// Say has answers to commands, or what makes them of a command's words.
	Say map[string]any

	mu    sync.Mutex
	asked []any // by the last XPENDING
}

// Change changes the fields while the Group is used.
func (g *Group) Change(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// Entry is an entry as XREADGROUP and XRANGE return it.
func Entry(id string) any { return []any{id, []any{"data", "of " + id}} }

// Pending is a row of XPENDING.
func Pending(id string, idle time.Duration, deliveries int) any {
	return []any{id, "other", int(idle.Milliseconds()), deliveries}
}

// InTurn gives one answer after the other, and the last one again and again.
func InTurn(answers ...any) func([]string) any {
	return func([]string) any {
		answer := answers[0]
		answers = answers[min(1, len(answers)-1):]
		return answer
	}
}

// Answer is for New.
func (g *Group) Answer(cmd []string) any {
	name := strings.ToLower(cmd[0])
	g.mu.Lock()
	said := g.Say[name]
	g.mu.Unlock()
	if answer, ok := said.(func([]string) any); ok {
		said = answer(cmd)
	} else if said == nil {
		said = Usual
	}
	if said != Usual {
		return said
	}
	switch name {
	case "xpending":
		g.Change(func() {
			if g.asked = g.All; len(cmd) > 6 {
				g.asked = g.Own
			}
		})
		return Status("QUEUED")
	case "exec":
		g.mu.Lock()
		defer g.mu.Unlock()
		return []any{slices.Clone(g.asked)}
	case "xreadgroup":
		return g.read(cmd)
	case "fetch":
		var found []any
		for _, id := range cmd[5:] {
			found = append(found, []any{2, []any{"data", "of " + id + " again"}})
		}
		return found
	case "takeover":
		var ids []any
		for _, id := range cmd[7:] {
			ids = append(ids, id)
		}
		return ids
	case "deadletter":
		return []any{"moved"}
	case "xrevrange":
		return []any{Entry("5-1")}
	case "xrange":
		return []any{}
	case "hold", "dismiss", "acknowledge":
		return 0
	case "xack":
		return 1
	case "xackdel": // of Redis 8.2
		return errors.New("ERR unknown command 'xackdel'")
	}
	return Status("OK")
}

// read waits as long as it is asked to where there is nothing.
func (g *Group) read(cmd []string) any {
	count, _ := strconv.Atoi(cmd[5])
	wait, _ := strconv.Atoi(cmd[7])
	g.mu.Lock()
	n := min(count, len(g.Fresh))
	entries := g.Fresh[:n:n]
	g.Fresh = g.Fresh[n:]
	g.mu.Unlock()
	if n == 0 {
		<-time.After(time.Duration(wait) * time.Millisecond)
		return nil
	}
	return []any{[]any{"s", entries}}
}

// Words joins the words of what was heard, each in a line.
func Words(heard []Heard) string {
	var lines []string
	for _, h := range heard {
		lines = append(lines, fmt.Sprint(h.At, " ", strings.Join(h.Cmd, " ")))
	}
	return strings.Join(lines, "\n")
}
