package script

import (
	"encoding"
	"net"
	"slices"
	"time"
)

// perArg is what an argument weighs beside its bytes: it costs the server as much as they.
const perArg = 60

// seal makes a commit independent of its caller, who may leave it in flight and go on with the memory that it was
// made of, and weighs it.
func (r *request) seal() {
	if r.size == 0 {
		r.size = perArg*(firstKey+r.keys+commitHead+1+r.part.args) + r.part.tx.freeze()
	}
}

// freeze replaces what a transaction has of its caller by copies, and counts their bytes, and those of guarded reads.
func (tx *Tx) freeze() (size int) {
	n := 0
	for i := range tx.Guards {
		n += len(tx.Guards[i].Args)
	}
	for i := range tx.Commands {
		n += len(tx.Commands[i].Args)
	}
	copies := make([]any, 0, n)
	for i := range tx.Guards {
		args := &tx.Guards[i].Args
		size += tx.Guards[i].Size
		copies = appendFrozen(copies, *args, &size)
		*args = copies[len(copies)-len(*args):]
	}
	for i := range tx.Commands {
		args := &tx.Commands[i].Args
		copies = appendFrozen(copies, *args, &size)
		*args = copies[len(copies)-len(*args):]
	}
	for i := range tx.Events {
		e := &tx.Events[i]
		e.Body = slices.Clone(e.Body)
		size += len(e.ID) + len(e.Body)
	}
	return size
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

// frozen returns an argument that nobody else can change, and that go-redis sends as it would the original.
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
		if b, err := v.MarshalBinary(); err == nil { // else sending it is what fails
			return slices.Clone(b)
		}
	}
	return arg
}

func pointed[T any](p *T) any {
	if p == nil {
		return p // go-redis knows what to send
	}
	return *p
}

// share lays a batch out as calls: what is of one slot shares a script, and the input, where there is one.
func share(batch []*request) []*call {
	var calls []*call
	for i, first := range batch {
		if first.flight.call != nil {
			continue
		}
		c := &call{script: first.script, durability: first.durability, shard: first.part.shard, input: first.part.tx.input()}
		calls = append(calls, c)
		first.flight.call = c
		for _, r := range batch[i+1:] {
			if r.flight.call == nil && c.admits(r) {
				r.flight.call, c.shared = c, true
			}
		}
		if c.shared {
			c.join(batch[i:])
		} else {
			first.lay()
			c.argv = first.argv
		}
	}
	return calls
}

// admits reports whether a request may travel in the call, and takes its input for that of all.
func (c *call) admits(r *request) bool {
	input := r.part.tx.input()
	switch {
	case r.part.shard != c.shard:
		return false
	case input == nil:
		return true
	case c.input == nil:
		c.input = input
		return true
	}
	return input.Stream == c.input.Stream && input.Group == c.input.Group && input.Consumer == c.input.Consumer
}

// join lays out the commits that share the call: the keys of the shard and the head of the arguments once.
func (c *call) join(batch []*request) {
	parts, keys, args := 0, commitKeys, commitHead
	for _, r := range batch {
		if r.flight.call == c {
			parts++
			keys += r.keys - commitKeys
			args += 1 + r.part.args
		}
	}
	c.parts = uint16(parts) //nolint:gosec // maxBatch at most
	argv := append(make([]any, 0, firstKey+keys+args), "evalsha", c.script.argument, keys)
	argv = append(argv, c.shard.commit[:]...)
	for _, r := range batch {
		if r.flight.call == c {
			argv = r.part.appendKeys(argv)
		}
	}
	input := c.input
	if input == nil {
		input = &Input{}
	}
	argv = append(argv, parts, &input.Stream, &input.Group, &input.Consumer)
	for _, r := range batch {
		if r.flight.call == c {
			argv = append(argv, &r.part.tx.Digest)
		}
	}
	for _, r := range batch {
		if r.flight.call == c {
			argv = r.part.tx.append(argv, r.part.plan)
		}
	}
	c.argv = argv
}
