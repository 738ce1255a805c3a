package commit

import "strings"

// spacious is the number of transactions for which the tables of a batch have room from the beginning. Growing a table costs more
// than using it.
const spacious = 8

// room returns so many empty values of a table.
func room(n int) string { return strings.Repeat(", nil", n) }

// gather writes code that collects the data that the transactions of a batch share.
func (g *generator) gather() {
	one, two := room(spacious), room(2*spacious)
	g.put("local n = (#A - %d) / %d", g.head(), g.width())
	if g.positioned {
		g.put("local asked, marks, seen = {'HMGET', @POSITIONS%s}, {'HSET', @POSITIONS%s}, {}", one, two)
	} else {
		g.put("local asked, marks, seen = {'HMGET', @INBOX_A, 'id'%s}, {'HSET', @INBOX_A%s}, {}", one, two)
	}
	if g.events > 0 {
		one, two = room(g.events*spacious), room(2*g.events*spacious)
		g.put("local size = 0")
		g.put("local ids, bodies, due = {'HMGET', @ENTRIES%s}, {'HSET', @ENTRIES%s}, {'ZADD', @PENDING%s}", one, two, two)
		g.put("local score = %s", g.score())
	}
	g.put("for i = 1, n do\nlocal p = %s", linear(g.width(), g.head()-g.width()))
	if g.positioned {
		g.put("asked[i + 2] = %s", g.arg(argDigest))
	} else {
		g.put("local digest = %s\nif seen[digest] then %s end\nseen[digest] = true", g.arg(argDigest), leave)
		g.put("asked[i + 3], marks[2 * i + 1], marks[2 * i + 2] = digest, digest, %s", g.arg(argToken))
	}
	for e := range g.events {
		first := 3 + 2*(e-g.events)
		at, behind := linear(2*g.events, first), linear(2*g.events, first+1)
		g.put("local id, body = %s, %s\nif seen[id] then %s end\nseen[id] = true", g.arg(g.firstEvent()+2*e), g.arg(g.firstEvent()+2*e+1), leave)
		g.put("ids[%s], bodies[%s], bodies[%s] = id, id, body", linear(g.events, 3+e-g.events), at, behind)
		g.put("due[%s], due[%s], size = score, id, size + #body", at, behind)
	}
	g.put("end")
}
