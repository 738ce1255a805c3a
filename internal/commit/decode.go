package commit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
)

// decode reads the outcome of the commit from its call.
func (c *Commit) decode() {
	call := &c.call
	c.Unanswered, c.Replicated, c.Err = call.Unanswered, call.Replicated, call.Failure
	c.Tries, c.Batch = c.Tries+call.Tries, call.Batch
	if c.Err != nil {
		return
	}
	reply, nth := call.Reply()
	var rows []any
	if c.Now, rows, c.Err = eval.Timed(reply); c.Err == nil {
		if c.compiled != nil {
			c.Outcome, c.Err = c.compiled.outcome(rows, nth)
		} else {
			c.Outcome, c.Err = outcome(answer(rows, nth), len(c.Commands))
		}
	}
	if out, order := &c.Outcome, c.Order; out.Index > 0 && out.Index <= len(order) {
		out.Index = order[out.Index-1] + 1
	}
	if c.Err != nil {
		c.Unanswered = true // the outcome is unknown
	}
}

// outcome reads the result of the nth commit from the reply of a compiled script, which only returns commits.
func (k *compiled) outcome(rows []any, nth int) (Outcome, error) {
	size := 1 + len(k.steps)
	if len(rows) < (nth+1)*size {
		return Outcome{}, eval.Malformed("commit", rows)
	}
	k.hit()
	row := rows[nth*size:][:size]
	return committed(row), nil
}

// committed parses the flags of a commit and the replies that follow them.
func committed(row []any) Outcome {
	flags := eval.Number(row[0])
	return Outcome{State: Committed, Acked: flags&1 != 0, Woken: flags&2 != 0, Replies: row[1:]}
}

// answer returns the result of the nth commit of a script. The size of each result precedes it. A shard of another
// keyspace returns one result for all commits.
func answer(rows []any, nth int) []any {
	for first := true; len(rows) > 0; first = false {
		size, _ := rows[0].(int64)
		if size < 1 || int(size) >= len(rows) {
			return nil
		}
		row := rows[1:][:size]
		if nth == 0 || first && State(eval.Word(row[0])) == Identity {
			return row
		}
		rows = rows[1+size:]
		nth--
	}
	return nil
}

// outcome reads the result of a transaction with that many commands.
func outcome(fields []any, commands int) (Outcome, error) {
	if len(fields) == 0 {
		return Outcome{}, eval.Malformed("commit", fields)
	}
	out := Outcome{State: State(eval.Word(fields[0]))}
	rest := fields[1:]
	switch out.State {
	case Committed:
		if len(rest) < 1+commands || (len(rest)-1-commands)%3 != 0 {
			return out, eval.Malformed("commit", fields)
		}
		out = committed(rest[:1+commands])
		for emitted := rest[1+commands:]; len(emitted) > 0; emitted = emitted[3:] {
			out.Emitted = append(out.Emitted, shard.ReadEvent(eval.Word(emitted[0]), eval.Word(emitted[1]), eval.Word(emitted[2])))
		}
	case Replayed, Duplicate:
		if len(rest) != 3 {
			return out, eval.Malformed("commit", fields)
		}
		out.Acked, out.Same = rest[0] == int64(1), rest[1] == int64(1)
		if number, frames, _ := strings.Cut(eval.Word(rest[2]), ":"); number == strconv.Itoa(commands) {
			out.Kept = frames
		}
	case Failed, Aborted, Rejected:
		if len(rest) < 2 {
			return out, eval.Malformed("commit", fields)
		}
		index, _ := rest[0].(int64)
		out.Index, out.Text = int(index), fmt.Sprint(rest[1])
	case Refused, Broken, Identity, Full, Early, Epoch:
		if len(rest) > 0 {
			out.Text = fmt.Sprint(rest[0])
		}
	case Expired, Fenced, Conflict:
	default:
		return out, eval.Malformed("commit", fields)
	}
	return out, nil
}
