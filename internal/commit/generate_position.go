package commit

// A compiled script handles the position of a transaction only if the record has the same owner, epoch and number of
// digits and a lower offset. It passes every other transaction to commit.lua. See internal/lua/_position.lua for the
// record.

// position writes code that checks the position of a single transaction. It declares old, which is the record or false
// if there is none, and moved, which is the new record.
func (g *generator) position() {
	offset, after, owner := g.arg(g.firstPlace()), g.arg(g.firstPlace()+1), g.arg(g.firstPlace()+2)
	g.put("local old = try('HGET', @POSITIONS, %s)\nif type(old) == 'table' then %s end", g.arg(argDigest), leave)
	g.follows("old", offset, after, owner)
	g.put("local moved = %s .. %s .. %s", g.arg(argToken), offset, owner)
}

// follows writes code that returns early unless a record lets a transaction move it.
func (g *generator) follows(record, offset, after, owner string) {
	g.put("if %s then", record)
	g.put("local cut = #%s - #%s\nlocal stored = string.sub(%s, 11, cut)", record, owner, record)
	g.put("if cut - 10 ~= #%s or stored >= %s or stored < %s or string.sub(%s, cut + 1) ~= %s then %s end", offset, offset, after, record, owner, leave)
	g.put("elseif %s ~= '' then %s end", after, leave)
}

// positions writes code that checks the positions of a batch in order. It declares olds, the record before each
// transaction, and stopped, the positions that later transactions must not move after a failure. Each position is
// written once.
func (g *generator) positions() {
	g.put("local rows = try(unpack(asked))\nif rows.err then %s end", leave)
	g.put("local olds, stopped, at, last = {}, {}, {}, 2")
	g.put("for i = 1, n do\nlocal p = %s", linear(g.width(), g.head()-g.width()))
	g.put("local field, offset, owner = %s, %s, %s", g.arg(argDigest), g.arg(g.firstPlace()), g.arg(g.firstPlace()+2))
	g.put("local known = at[field]\nlocal old = rows[i]\nif known then old = marks[known + 1] end")
	g.follows("old", "offset", g.arg(g.firstPlace()+1), "owner")
	g.put("if not known then\nknown = last + 1\nlast = last + 2\nmarks[known], at[field] = field, known\nend")
	g.put("olds[i], marks[known + 1] = old, %s .. offset .. owner\nend", g.arg(argToken))
}

// unmark writes code that restores the mark or the position of a failed transaction, unless left contains commands that
// were not undone.
func (g *generator) unmark(field string) {
	switch {
	case !g.positioned:
		g.put("if not left then left = restore({'HDEL', @INBOX_A, %s}) end", field)
	case g.batch:
		g.put("if not left and not stopped[%s] then\nlocal old = olds[i]", field)
		g.put("left = restore(old and {'HSET', @POSITIONS, %s, old} or {'HDEL', @POSITIONS, %s})\nend\nstopped[%s] = true", field, field, field)
	default:
		g.put("if not left then left = restore(old and {'HSET', @POSITIONS, %s, old} or {'HDEL', @POSITIONS, %s}) end", field, field)
	}
}
