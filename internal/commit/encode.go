package commit

import (
	"encoding"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/shard"
)

// The arguments of internal/lua/commit.lua after the keys are a head, which all commits of a script share, the digest
// of each commit, and then for each commit its plan, its token and the arguments that the plan announces.

// headArgs is the number of arguments in the head: the number of commits, and the group and consumer of their input.
const headArgs = 3

// positionArgs is the number of arguments of a position in commit.lua.
const positionArgs = 4

// inputKeys is the number of keys of an input: the stream, and the record of takeovers from its consumers.
const inputKeys = 2

// Pack implements eval.Load.
func (c *Commit) Pack(calls []*eval.Call) (script *eval.Script, argv []any, ahead [][]any) {
	if c.compiled != nil {
		script, argv = c.compiled.pack(calls)
		return script, argv, nil
	}
	keys, args := shard.CommitKeys, headArgs
	input := &c.Input
	for _, call := range calls {
		m := of(call)
		keys += m.ownKeys()
		args += 1 + m.args
		if m.Input.Ack != AckNone {
			input = &m.Input
		}
	}
	if input.Ack != AckNone {
		keys += inputKeys
	}
	argv = append(c.general.Argv(keys, args), c.Shard.CommitKeys()...)
	if input.Ack != AckNone {
		argv = append(argv, &input.Stream, group.TakenKey(input.Stream))
	}
	for _, call := range calls {
		argv = of(call).appendKeys(argv)
	}
	argv = append(argv, len(calls), &input.Group, &input.Consumer)
	for _, call := range calls {
		argv = append(argv, &of(call).Digest)
	}
	for _, call := range calls {
		argv = of(call).append(argv)
		ahead = of(call).stores(ahead)
	}
	return c.general, argv, ahead
}

// pack encodes commits for their compiled script; see compile.go.
func (k *compiled) pack(calls []*eval.Call) (*eval.Script, []any) {
	first := of(calls[0])
	script, room, until := k.alone, first.room, &first.until
	if len(calls) > 1 { // the first call may have arguments from a round trip that it made alone
		script, room, until = k.batch, nil, new(string)
	}
	argv := script.ArgvIn(room, k.keyCount()+len(calls)*len(k.steps), k.head()+len(calls)*k.width())
	argv = k.ownKeys(argv, first.Shard)
	if k.ack != AckNone {
		argv = append(argv, &first.Input.Stream, k.sender.taken.of(first.Input.Stream))
	}
	for _, call := range calls {
		for _, command := range of(call).Commands {
			argv = append(argv, command.Args[1])
		}
	}
	notAfter := &first.notAfter
	for _, call := range calls[1:] {
		if c := of(call); c.notAfter < *notAfter {
			notAfter = &c.notAfter
		}
	}
	if k.ack != AckNone {
		var few [64]byte
		*until = string(append(strconv.AppendInt(few[:0], *notAfter, 10), first.Input.Consumer...))
		argv = append(argv, &first.Input.Group, until)
	} else {
		argv = append(argv, notAfter)
	}
	for _, call := range calls {
		c := of(call)
		argv = append(argv, c.key(), &c.Token)
		if k.ack != AckNone {
			argv = append(argv, &c.Input.Entry)
		}
		if p := c.Position; p != nil {
			argv = append(argv, &p.Offset, &p.After, &p.Owner)
		}
		for i := range c.Events {
			argv = c.Events[i].Append(argv, false)
		}
		for _, command := range c.Commands {
			argv = append(argv, command.Args[2:]...)
		}
	}
	if len(calls) == 1 {
		first.room = argv
	}
	return script, argv
}

// key returns the field of the commit in the inbox or in the positions.
func (c *Commit) key() *string {
	if c.Position != nil {
		return &c.Position.Field
	}
	return &c.Digest
}

// Again implements eval.Load. It returns true if a compiled script has skipped the commit, which then goes to
// commit.lua, or if a large body of the commit was missing.
func (c *Commit) Again(reply any, nth int) bool {
	if c.compiled == nil {
		gone := c.bodyGone(reply, nth)
		if gone {
			c.unstage()
		}
		return gone
	}
	rows, many := reply.([]any)
	if flags := 1 + nth*(1+len(c.Commands)); many && flags < len(rows) && rows[flags] != int64(-1) {
		return false
	}
	if n, one := reply.(int64); !many && (!one || n != 0) {
		return false // decode returns the error
	}
	c.plans.leave(c.plan)
	c.compiled = nil
	return true
}

func of(call *eval.Call) *Commit {
	c, _ := call.Load.(*Commit)
	return c
}

// Join implements eval.Load. The commits of a script belong to one shard and have at most one input stream.
func (c *Commit) Join(other eval.Load) (eval.Load, bool) {
	o, ok := other.(*Commit)
	switch {
	case !ok || o.Shard != c.Shard || o.compiled != c.compiled:
		return nil, false
	case o.Input.Ack == AckNone:
		return c, true
	case c.Input.Ack == AckNone:
		return o, true
	}
	return c, o.Input.Stream == c.Input.Stream && o.Input.Group == c.Input.Group && o.Input.Consumer == c.Input.Consumer
}

// ownKeys returns the number of keys that appendKeys appends.
func (c *Commit) ownKeys() int {
	n := len(c.Keys)
	if c.Keep {
		n += len(c.Shard.ResultKeys())
	}
	if c.special() {
		n += len(c.Shard.EntranceKeys())
	}
	if c.Position != nil {
		n++
	}
	return n
}

// appendKeys appends the keys that only some commits have.
func (c *Commit) appendKeys(argv []any) []any {
	if c.Keep {
		for _, key := range c.Shard.ResultKeys() {
			argv = append(argv, key)
		}
	}
	if c.special() {
		for _, key := range c.Shard.EntranceKeys() {
			argv = append(argv, key)
		}
	}
	if c.Position != nil {
		argv = append(argv, c.Shard.PositionsKey())
	}
	for i := range c.Keys {
		argv = append(argv, &c.Keys[i])
	}
	return argv
}

// arguments returns the number of arguments that append appends.
func (c *Commit) arguments() int {
	n := 3 + 2*len(c.Events)
	if c.Input.Ack != AckNone {
		n++
	}
	if c.Position != nil {
		n += positionArgs
	}
	if !c.plainEvents() {
		n += len(c.Events)
	}
	for _, guard := range c.Guards {
		n += 2 + len(guard.Args)
	}
	for _, command := range c.Commands {
		n += command.arguments()
	}
	return n
}

// arguments returns the number of arguments of a command, including its positions.
func (c Command) arguments() int {
	if c.Class() == lua.KeysAt {
		return len(c.Args) + 1
	}
	return len(c.Args)
}

// append encodes the commit with its plan. It passes texts by pointer, which needs no allocation.
func (c *Commit) append(args []any) []any {
	args = append(args, c.plan.text, &c.Token, &c.notAfter)
	if c.Input.Ack != AckNone {
		args = append(args, &c.Input.Entry)
	}
	if p := c.Position; p != nil {
		args = append(args, &p.Field, &p.Offset, &p.After, &p.Owner)
	}
	for _, guard := range c.Guards {
		args = append(args, guard.head(), guard.Digest)
		args = append(args, guard.Args...)
	}
	heads := !c.plainEvents()
	for i := range c.Events {
		args = c.Events[i].Append(args, heads)
	}
	for _, command := range c.Commands {
		if command.Class() == lua.KeysAt {
			_, positions, _ := strings.Cut(command.Head, " ")
			args = append(args, positions)
		}
		args = append(args, command.Args...)
	}
	return args
}

func (g Guard) head() string { return string(g.Order) + strconv.Itoa(len(g.Args)) }

// Seal implements eval.Load. It replaces all data that belongs to the caller with copies. The size of guarded reads
// includes their replies.
func (c *Commit) Seal() (args, bytes int) {
	n := 0
	for i := range c.Guards {
		n += len(c.Guards[i].Args)
	}
	for i := range c.Commands {
		n += len(c.Commands[i].Args)
	}
	copies := make([]any, 0, n)
	for i := range c.Guards {
		args := &c.Guards[i].Args
		bytes += c.Guards[i].Size
		copies = appendFrozen(copies, *args, &bytes)
		*args = copies[len(copies)-len(*args):]
	}
	for i := range c.Commands {
		args := &c.Commands[i].Args
		copies = appendFrozen(copies, *args, &bytes)
		*args = copies[len(copies)-len(*args):]
	}
	for i := range c.Events {
		e := &c.Events[i]
		if !e.Own {
			e.Body, e.Own = slices.Clone(e.Body), true
		}
		bytes += len(e.ID) + len(e.Body)
	}
	return eval.FirstKey + shard.CommitKeys + inputKeys + c.ownKeys() + headArgs + 1 + c.args, bytes
}

func appendFrozen(copies, args []any, size *int) []any {
	for _, arg := range args {
		arg = frozen(arg)
		switch v := arg.(type) {
		case string:
			*size += len(v)
		case []byte:
			*size += len(v)
		}
		copies = append(copies, arg)
	}
	return copies
}

// frozen returns a copy of an argument that no other code can change, and that go-redis sends like the original.
func frozen(arg any) any {
	switch v := arg.(type) {
	case string, int, int64:
		return arg
	case []byte:
		return slices.Clone(v)
	case net.IP:
		return slices.Clone([]byte(v))
	case *string:
		return pointed(v)
	case *int:
		return pointed(v)
	case *int64:
		return pointed(v)
	case *float64:
		return pointed(v)
	case *bool:
		return pointed(v)
	case *time.Time:
		return pointed(v)
	case time.Time:
		return arg
	case encoding.BinaryMarshaler:
		if b, err := v.MarshalBinary(); err == nil { // otherwise, sending it fails
			return slices.Clone(b)
		}
	}
	return arg
}

func pointed[T any](p *T) any {
	if p == nil {
		return p // go-redis handles a nil pointer
	}
	return *p
}
