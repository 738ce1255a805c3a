package commit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/luatx/luatx/internal/lua"
)

// writer writes text with indented blocks.
type writer struct {
	strings.Builder

	depth int
}

// closes and opens match the lines at which a block ends and begins.
var (
	closes = regexp.MustCompile(`^(end|else|elseif|until)\b`)
	opens  = regexp.MustCompile(`\b(then|do|else|repeat)$`)
)

// put writes lines. It indents those of a block.
func (w *writer) put(format string, args ...any) {
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		if closes.MatchString(line) {
			w.depth--
		}
		if line != "" {
			w.WriteString(strings.Repeat("  ", w.depth) + line)
		}
		w.WriteByte('\n')
		if opens.MatchString(line) {
			w.depth++
		}
	}
}

// fragment writes an indented fragment of the scripts.
func (g *generator) fragment(name string) {
	text, w := lua.Fragment(name), &g.writer
	if g.events == 0 {
		text = strings.NewReplacer("@PENDING", "none", "@ENTRIES", "none").Replace(text)
	}
	for line := range strings.Lines(text) {
		if line != "\n" {
			w.WriteString(strings.Repeat("  ", w.depth) + line)
		}
	}
}

// generator writes the script of a shape, for one transaction or for several.
type generator struct {
	writer
	shape

	batch bool
}

// compile returns the script of a shape, with sigils.
func (s shape) compile(batch bool) string {
	g := &generator{shape: s, batch: batch}
	g.put("-- A commit made for its plan: %s.", s)
	if batch {
		g.put("-- For any number of transactions.")
	}
	g.put("local string, call, try, KEYS, A = string, redis.call, redis.pcall, KEYS, ARGV")
	g.put("local time = call('TIME')\nlocal NOW = time[1] .. string.sub(#time[2] == 6 and time[2] or '00000' .. time[2], -6, -4) -- ms")
	g.put("if NOW > A[%d] then %s end", g.head(), leave)
	kept := s.steps[:max(0, len(s.steps)-1)] // the last one needs no undo
	if slices.ContainsFunc(kept, func(s step) bool { return s.class == lua.HashFields }) {
		g.put("local fields_expire = (redis.REDIS_VERSION_NUM or 0) >= 0x070400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x090000")
	}
	if slices.ContainsFunc(kept, func(s step) bool { return s.class == lua.ReplacedString }) {
		g.put("local seven = (redis.REDIS_VERSION_NUM or 0) >= 0x070000")
	}
	if batch {
		g.gather()
	}
	g.inbox()
	g.fence()
	g.sizes()
	g.count()
	g.mark()
	g.transactions()
	g.finish()
	return g.writer.String()
}

// arg returns the nth argument of the transaction, from 1.
func (g *generator) arg(n int) string {
	if g.batch {
		return fmt.Sprintf("A[p + %d]", n)
	}
	return fmt.Sprintf("A[%d]", g.head()+n)
}

// key returns the key of a step, from 0.
func (g *generator) key(n int) string {
	if g.batch {
		return fmt.Sprintf("KEYS[k + %d]", n+1)
	}
	return fmt.Sprintf("KEYS[%d]", g.keyCount()+n+1)
}

// args returns count arguments of the transaction, beginning with the nth, at intervals of step. A comma precedes each.
func (g *generator) args(n, count, step int) string {
	var b strings.Builder
	for i := range count {
		b.WriteString(", " + g.arg(n+i*step))
	}
	return b.String()
}

// ownKey returns a key of the shard that few commits use and that the script does not declare. While a slot migrates, the
// declared void key prevents the script from running.
func ownKey(name string) string { return "string.sub(@VOID, 1, -5) .. '" + name + "'" }

// linear returns an expression that is linear in the transaction i of a batch.
func linear(times, plus int) string {
	text := "i"
	if times != 1 {
		text = fmt.Sprintf("%d * i", times)
	}
	switch {
	case plus > 0:
		return fmt.Sprintf("%s + %d", text, plus)
	case plus < 0:
		return fmt.Sprintf("%s - %d", text, -plus)
	}
	return text
}

// place returns the position of the flags, or of the nth reply, in the result of transaction i.
func (g *generator) place(n int) string { return linear(len(g.steps)+1, 1-len(g.steps)+n) }

// begin returns code that computes the positions at which the arguments and keys of transaction i begin.
func (g *generator) begin() string {
	p := linear(g.width(), g.head()-g.width())
	if len(g.steps) == 0 {
		return "local p = " + p
	}
	return fmt.Sprintf("local p, k = %s, %s", p, linear(len(g.steps), g.keyCount()-len(g.steps)))
}

// inbox writes code that passes duplicates and expired transactions to commit.lua. If the inbox is due for rotation, it
// passes all transactions.
func (g *generator) inbox() {
	if g.batch && !g.positioned {
		g.put("local rows = try(unpack(asked))\nlocal meta = rows[1]")
	} else {
		g.put("local meta = try('HGET', @INBOX_A, 'id')")
	}
	g.put("if not meta or #meta == 0 then %s end -- the length of an error is 0", leave)
	g.put("if NOW >= meta then %s end -- meta begins with the end of the generation", leave)
	const older = "string.find(meta, @ONE_GENERATION, -#@ONE_GENERATION, true) ~= 27"
	const foreign = "string.find(meta, @TWO_GENERATIONS, -#@TWO_GENERATIONS, true) ~= 27"
	switch {
	case g.positioned:
		g.put("if %s and %s then %s end", older, foreign, leave)
		if g.batch {
			g.positions()
		} else {
			g.position()
		}
	case g.batch:
		g.put("local older = %s\nif older and %s then %s end", older, foreign, leave)
		g.put("for i = 1, n do\nif rows[i + 1] then %s end\nend", leave)
		g.put("if older then\nasked[2] = %s\nrows = try(unpack(asked))", ownKey("inbox:b"))
		g.put("if rows.err then %s end\nfor i = 1, n do\nif rows[i + 1] then %s end\nend\nend", leave, leave)
	default:
		g.put("if %s then\nif %s or try('HEXISTS', %s, %s) ~= 0 then %s end\nend", older, foreign, ownKey("inbox:b"), g.arg(argDigest), leave)
	}
}

// fence writes code that passes transactions to commit.lua if another consumer has taken entries from this one. With positions, it asks
// XPENDING for the entries; see commit.lua.
func (g *generator) fence() {
	const consumer = "string.sub(A[2], 14)" // behind the deadline
	switch {
	case g.ack == AckNone:
	case !g.positioned:
		g.put("if try('EXISTS', @TAKEN) ~= 0 and try('HGET', @TAKEN, A[1] .. '\\0' .. %s) then %s end", consumer, leave)
	case g.batch:
		g.put("local pending, found = {}, try('XPENDING', @STREAM, A[1], A[%d], '+', n, %s)", g.head()+argEntry, consumer)
		g.put("for i = 1, #found do\npending[found[i][1]] = true\nend")
		g.put("for i = 1, n do\nlocal p = %s\nif not pending[%s] then %s end\nend", linear(g.width(), g.head()-g.width()), g.arg(argEntry), leave)
	default:
		g.put("if #try('XPENDING', @STREAM, A[1], %s, %[1]s, '1', %[2]s) == 0 then %[3]s end", g.arg(argEntry), consumer, leave)
	}
}

// mark writes the code of the mark. If the server accepts it and the id is not a duplicate, every later write is undone after an
// error. For a batch, mark also writes the code that adds the events.
func (g *generator) mark() {
	if !g.batch {
		if g.positioned {
			g.leaveUncounted(fmt.Sprintf("type(try('HSET', @POSITIONS, %s, moved)) ~= 'number'", g.arg(argDigest)))
		} else {
			g.leaveUncounted(fmt.Sprintf("try('HSETNX', @INBOX_A, %s, %s) ~= 1", g.arg(argDigest), g.arg(argToken)))
		}
		if g.events > 0 {
			g.put("local score = %s", g.score())
		}
		return
	}
	if !g.positioned {
		g.leaveUncounted("try(unpack(marks)) ~= n")
	} else {
		if g.events > 0 { // transactions behind a failed one take back their events
			g.leaveUncounted("type(try('ZREM', @PENDING, '')) ~= 'number' or type(try('HDEL', @ENTRIES, '')) ~= 'number'")
		}
		g.leaveUncounted("type(try(unpack(marks))) ~= 'number'")
	}
	if g.events > 0 {
		g.put("local early\nif try(unpack(bodies)) ~= %s or type(try(unpack(due))) ~= 'number' then early = %s end", g.all(), offPath)
		g.put("local added, woken = 0, nil")
	}
	g.put("local out = {NOW + 0%s}", room(spacious*(1+len(g.steps))))
	if g.ack == AckFused {
		g.put("local ack = {'XACK', @STREAM, A[1]%s}", room(spacious))
	}
}

// transactions writes code that runs the commands of each transaction, and undoes them if one fails.
func (g *generator) transactions() {
	if g.batch {
		g.put("for i = 1, n do\n%s", g.begin())
	}
	names := []string{"why", "step"}
	values := []string{"nil", "0"}
	if g.batch && g.events > 0 {
		values[0] = "early"
	} else if g.events > 0 {
		names, values = append(names, "entered"), append(values, "0")
	}
	g.put("local %s = %s", strings.Join(names, ", "), strings.Join(values, ", "))
	var locals []string
	for i := range g.steps {
		locals = append(locals, fmt.Sprintf("r%d", i+1))
		if g.class(i) != lua.NoUndo {
			locals = append(locals, fmt.Sprintf("old%d", i+1))
		}
		if g.class(i) == lua.ReplacedString {
			locals = append(locals, fmt.Sprintf("at%d", i+1))
		}
	}
	if len(locals) > 0 {
		g.put("local %s", strings.Join(locals, ", "))
	}
	g.put("repeat")
	switch {
	case !g.batch:
		g.enqueue()
	case g.events > 0:
		g.put("if why then break end")
	}
	if g.batch && g.positioned {
		g.put("if stopped[%s] then why = %s break end", g.arg(argDigest), offPath)
	}
	at := g.firstStep()
	for i, step := range g.steps {
		g.step(i, step, at)
		at += step.args
	}
	g.put("until true\nif why then")
	g.undo()
	if g.batch {
		g.put("out[%s] = -1", g.place(0))
		for j := range g.steps {
			g.put("out[%s] = false", g.place(j+1))
		}
		g.put("else")
		g.put("out[%s] = 0", g.place(0))
		for j := range g.steps {
			g.put("out[%s] = r%d", g.place(j+1), j+1)
		}
		if g.events > 0 {
			g.put("woken = woken or %s", g.place(0))
		}
		if g.ack == AckFused {
			g.put("ack[#ack + 1] = %s", g.arg(argEntry))
		}
		for e := range g.events {
			g.put("added = added + #%s", g.arg(g.firstEvent()+2*e+1))
		}
		g.put("end\nend")
		return
	}
	g.put("%s\nend", leave)
}

// class returns how step i is undone. The last one never is, because nothing can fail after it.
func (g *generator) class(i int) byte {
	if i == len(g.steps)-1 {
		return lua.NoUndo
	}
	return g.steps[i].class
}

// step writes code that saves the old value of the data that a command changes, and runs the command.
func (g *generator) step(i int, s step, at int) {
	n, key := i+1, g.key(i)
	g.put("step = %d -- %s", n, s.name)
	switch class := g.class(i); {
	case class == lua.NoUndo:
	case class == lua.HashFields:
		g.keepFields(n, key, at, (s.args+1)/2)
	case isCounter(s.name):
		g.keepLength(n, key, s.name, at)
	default:
		g.keepString(n, key, class)
	}
	g.put("r%d = try('%s', %s%s)", n, s.name, key, g.args(at, s.args, 1))
	exact := exactRead(s.name)
	if exact == "" { // comparing with common replies costs less than type
		g.put("if r%d ~= 0 and r%d ~= 1 and type(r%d) == 'table' and r%d.err then why = r%d.err break end", n, n, n, n, n)
		return
	}
	field, forget, forgotten := "", "", ""
	if exact == "HGET" {
		field = ", " + g.arg(at)
	}
	if g.class(i) != lua.NoUndo && isCounter(s.name) {
		forget, forgotten = fmt.Sprintf(", old%d", n), ", nil"
	}
	g.put("local kind = type(r%d)\nif kind == 'table' and r%d.err then why%s = r%d.err%s break end", n, n, forget, n, forgotten)
	g.put("if kind == 'number' and (r%d >= @TWO_53 or r%d <= -@TWO_53) then\nlocal exact = try('%s', %s%s)\nr%d = type(exact) == 'string' and exact or r%d\nend", n, n, exact, key, field, n, n)
}

// exactRead returns the command that reads the exact value of a counter, as in internal/lua/_refusal.lua.
func exactRead(name string) string {
	switch {
	case strings.HasPrefix(name, "HINCR"):
		return "HGET"
	case strings.HasPrefix(name, "INCR"), strings.HasPrefix(name, "DECR"):
		return "GET"
	}
	return ""
}

// finish writes code that takes the events of failed transactions from the counts, checks whether to wake relays, and
// acknowledges the inputs.
func (g *generator) finish() {
	flags := "flags"
	if g.batch {
		flags = "out[woken]"
	} else {
		g.put("local flags = 0")
	}
	if g.events > 0 {
		if g.batch {
			g.put("local change = added - size\nif woken then")
		}
		if g.delay == 0 {
			g.put("if idle or bytes %% @IDLE == size then %s = 2 end", flags)
			g.change("idle", "-@IDLE")
		} else { // the events belong to the inline relay, so no other relay is woken
			g.change("not idle and bytes % @IDLE == size", "@IDLE")
		}
		if g.batch {
			g.put("end\nif change ~= 0 then try('HINCRBY', @COUNTS, 'bytes', string.format('%%.0f', change)) end")
		}
	}
	switch {
	case g.ack != AckFused:
	case g.batch:
		g.put("if ack[4] and type(try(unpack(ack))) == 'number' then\nfor i = 1, n do\nlocal flags = %s", g.place(0))
		g.put("if out[flags] >= 0 then out[flags] = out[flags] + 1 end\nend\nend")
	default:
		g.put("local acked = try('XACK', @STREAM, A[1], %s)\nif acked == 1 or acked == 0 then flags = flags + 1 end", g.arg(argEntry))
	}
	if g.batch {
		g.put("return out")
		return
	}
	g.WriteString("return {NOW + 0, flags")
	for i := range g.steps {
		fmt.Fprintf(g, ", r%d", i+1)
	}
	g.WriteString("}\n")
}
