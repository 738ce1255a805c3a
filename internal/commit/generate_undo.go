package commit

import (
	"fmt"
	"strings"

	"github.com/luatx/luatx/internal/lua"
)

func (g *generator) keepFields(n int, key string, at, fields int) {
	g.put("old%d = try('HMGET', %s%s)", n, key, g.args(at, fields, 2))
	g.put("if old%d.err then why, old%d = old%d.err, nil break end", n, n, n)
	var sizes, there, expiring []string
	for f := range fields {
		sizes = append(sizes, fmt.Sprintf("#(old%d[%d] or '')", n, f+1))
		there = append(there, fmt.Sprintf("old%d[%d]", n, f+1))
		expiring = append(expiring, fmt.Sprintf("times[%d] >= 0", f+1))
	}
	g.put("if %s > @UNDO_BYTES then why, old%d = %s, nil break end", strings.Join(sizes, " + "), n, offPath)
	g.put("if fields_expire and (%s) then", strings.Join(there, " or "))
	g.put("local times = try('HPEXPIRETIME', %s, 'FIELDS', %d%s)", key, fields, g.args(at, fields, 2))
	g.put("if times.err or %s then why, old%d = %s, nil break end\nend", strings.Join(expiring, " or "), n, offPath)
}

func (g *generator) keepString(n int, key string, class byte) {
	g.put("old%d = try('GETRANGE', %s, '0', '@UNDO_BYTES')", n, key)
	g.put("if #old%d > @UNDO_BYTES then why, old%d = %s, nil break end", n, n, offPath)
	g.put("if #old%d == 0 then\n-- It is empty or an error.", n)
	g.put("if old%d ~= '' then why, old%d = old%d.err, nil break end\nlocal there = try('EXISTS', %s)", n, n, n, key)
	g.put("if type(there) == 'table' then why, old%d = there.err, nil break end\nold%d = there == 1 and ''\nend", n, n)
	if class == lua.ReplacedString {
		g.put("if old%d then\nat%d = try(seven and 'PEXPIRETIME' or 'PTTL', %s)", n, n, key)
		g.put("if type(at%d) == 'table' or at%d >= 0 and not seven then why, old%d = %s, nil break end\nend", n, n, n, offPath)
	}
}

// isCounter reports whether a command adds to an integer, so that its reply and its argument determine the old value.
func isCounter(name string) bool {
	return name == "INCR" || name == "DECR" || name == "INCRBY" || name == "DECRBY"
}

// longest is the maximum length of a counter and of its command's argument. A Lua number is exact for the sum of two such integers.
const longest = 15

// keepLength writes code that keeps the length of a counter. For a longer counter or argument, the code keeps the value.
func (g *generator) keepLength(n int, key, name string, at int) {
	long := ""
	if strings.HasSuffix(name, "BY") {
		long = fmt.Sprintf(" or #%s > %d", g.arg(at), longest)
	}
	g.put("old%d = try('STRLEN', %s)", n, key)
	g.put("if type(old%d) ~= 'number' or old%d > %d%s then", n, n, longest, long)
	g.keepString(n, key, lua.ChangedString)
	g.put("end")
}

// oldCounter returns an expression for the value of a counter before its command.
func (g *generator) oldCounter(n int, name string, at int) string {
	sign, by := "-", "1"
	if strings.HasPrefix(name, "DECR") {
		sign = "+"
	}
	if strings.HasSuffix(name, "BY") {
		by = g.arg(at)
	}
	return fmt.Sprintf("string.format('%%.0f', r%d %s %s)", n, sign, by)
}

// undo writes code that undoes a transaction and its mark. After a rollback failure, the mark stays, and every
// redelivery returns the failure.
func (g *generator) undo() {
	g.put("local undo = {}")
	if g.events == 0 {
		g.put("local none -- there are no events to take back")
	}
	g.fragment("_rollback")
	if g.events > 0 && !g.batch {
		g.put("undo[1] = {'HINCRBY', @COUNTS, 'bytes', -size}")
	}
	for e := range g.events {
		id := g.arg(g.firstEvent() + 2*e)
		if g.batch {
			g.put("undo[%d] = %s", e+1, id)
		} else {
			g.put("if entered > %d then undo[%d] = %s end", e, e+2, id)
		}
	}
	at := g.firstStep()
	for i, s := range g.steps {
		n, key := i+1, g.key(i)
		switch g.class(i) {
		case lua.HashFields:
			g.put("if old%d then undo[#undo + 1] = {{'HMGET', %s%s}, old%d} end", n, key, g.args(at, (s.args+1)/2, 2), n)
		case lua.ChangedString:
			if isCounter(s.name) {
				g.put("if old%d == 0 then\nold%d = false\nelseif type(old%d) == 'number' then\nold%d = %s\nend", n, n, n, n, g.oldCounter(n, s.name, at))
			}
			g.put("if old%d == false then undo[#undo + 1] = {'UNLINK', %s} end", n, key)
			g.put("if old%d then undo[#undo + 1] = {'SET', %s, old%d, 'KEEPTTL'} end", n, key, n)
		case lua.ReplacedString:
			g.put("if old%d == false then undo[#undo + 1] = {'UNLINK', %s} end", n, key)
			g.put("if old%d and at%d >= 0 then undo[#undo + 1] = {'PEXPIREAT', %s, string.format('%%.0f', at%d)} end", n, n, key, n)
			g.put("if old%d then undo[#undo + 1] = {'SET', %s, old%d} end", n, key, n)
		}
		at += s.args
	}
	digest := g.arg(argDigest)
	g.put("local left = rollback()")
	g.unmark(digest)
	g.put("if left then\nleft = 'command ' .. step .. ': ' .. why .. '; not restored: ' .. left")
	g.put("call('HSET', %s, %s, left)", ownKey("broken"), digest)
	if g.positioned {
		owner := g.arg(g.firstPlace() + 2)
		g.put("call('HSET', @POSITIONS, %s, %s .. %s .. '!' .. string.sub(%s, 2))\nend", digest, g.arg(argToken), g.arg(g.firstPlace()), owner)
		return
	}
	g.put("call('HSET', @INBOX_A, %s, %s .. '!')\nend", digest, g.arg(argToken))
}
