package commit

import (
	"fmt"
	"strings"
)

// score returns the time at which the events are due.
func (g *generator) score() string {
	if g.delay == 0 {
		return "NOW"
	}
	return fmt.Sprintf("string.format('%%d', NOW + %d)", g.delay)
}

// all returns the number of events of all transactions.
func (g *generator) all() string {
	switch {
	case !g.batch:
		return fmt.Sprint(g.events)
	case g.events == 1:
		return "n"
	}
	return fmt.Sprintf("%d * n", g.events)
}

// sizes writes code that finds the size of the events. It passes transactions with the same event twice to commit.lua, and those of a
// batch if the outbox already contains an event.
func (g *generator) sizes() {
	switch {
	case g.events == 0:
	case g.batch:
		g.put("local found = try(unpack(ids))\nif found.err then %s end\nfor i = 1, %s do\nif found[i] then %s end\nend", leave, g.all(), leave)
	default:
		bodies, same := make([]string, g.events), []string(nil)
		for e := range bodies {
			bodies[e] = "#" + g.arg(g.firstEvent()+2*e+1)
			for before := range e {
				same = append(same, g.arg(g.firstEvent()+2*e)+" == "+g.arg(g.firstEvent()+2*before))
			}
		}
		if len(same) > 0 {
			g.put("if %s then %s end", strings.Join(same, " or "), leave)
		}
		g.put("local size = %s", strings.Join(bodies, " + "))
	}
}

// count writes code that adds the events to the counts, see internal/lua/_bytes.lua. An outbox with fewer bytes than its capacity
// has room for more events, because each has a body.
func (g *generator) count() {
	if g.events == 0 {
		return
	}
	g.put("local bytes, idle, full = try('HINCRBY', @COUNTS, 'bytes', size), nil, nil\nif type(bytes) ~= 'number' then %s end", leave)
	g.put("if bytes < size then\nfull = true -- the number was negative")
	g.put("elseif bytes > @ROOM then\nidle = bytes %% @HOLDS >= @IDLE\nif idle then bytes = bytes - @IDLE end\nif bytes > @ROOM then")
	g.fragment("_crowded")
	g.put("full = crowded(bytes, %s)\nend\nend", g.all())
}

// leaveUncounted writes code that passes transactions to commit.lua on a condition or if there may be no room.
func (g *generator) leaveUncounted(condition string) {
	if g.events == 0 {
		g.put("if %s then %s end", condition, leave)
		return
	}
	g.put("if full or %s then\ntry('HINCRBY', @COUNTS, 'bytes', -size)\n%s\nend", condition, leave)
}

// change writes code that changes the marks in the counts on a condition.
func (g *generator) change(condition, by string) {
	if g.batch {
		g.put("if %s then change = change + %s end", condition, by)
	} else {
		g.put("if %s then try('HINCRBY', @COUNTS, 'bytes', '%s') end", condition, by)
	}
}

// enqueue writes code that adds the events of one transaction.
func (g *generator) enqueue() {
	for e := range g.events {
		id, body := g.arg(g.firstEvent()+2*e), g.arg(g.firstEvent()+2*e+1)
		g.put("step = %d", -e-1)
		g.put("if try('HSETNX', @ENTRIES, %s, %s) ~= 1 then why = %s break end", id, body, offPath)
		g.put("entered = %d\nlocal added = try('ZADD', @PENDING, score, %s)", e+1, id)
		g.put("if added ~= 1 and added ~= 0 then why = %s break end", offPath)
	}
}
