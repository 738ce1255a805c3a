package script

import (
	"encoding"
	"net"
	"slices"
	"time"
)

// perArg is what an argument weighs beside its bytes: it costs the server as much as they.
const perArg = 60

// seal makes a request independent of its caller, who may leave it in flight and go on with the memory that it
// was made of, and weighs it.
func (r *request) seal() {
	if r.size > 0 {
		return
	}
	for i, arg := range r.argv {
		if i >= r.own {
			arg = frozen(arg)
			r.argv[i] = arg
		}
		r.size += perArg
		switch v := arg.(type) {
		case string:
			r.size += len(v)
		case []byte:
			r.size += len(v)
		}
	}
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
		c := &call{script: first.script, argv: first.argv, durability: first.durability, slot: first.slot, input: first.input}
		calls = append(calls, c)
		first.flight.call = c
		rows := 1
		for _, r := range batch[i+1:] {
			if r.flight.call == nil && c.admits(r) {
				r.flight.call, r.flight.row = c, rows
				rows++
			}
		}
		if rows > 1 {
			c.argv, c.shared = join(batch[i:], c), true
		}
	}
	return calls
}

// admits reports whether a request may travel in the call, and takes its input for that of all.
func (c *call) admits(r *request) bool {
	switch {
	case r.slot != c.slot:
		return false
	case r.input == nil:
		return true
	case c.input == nil:
		c.input = r.input
		return true
	}
	return r.input.Stream == c.input.Stream && r.input.Group == c.input.Group && r.input.Consumer == c.input.Consumer
}

// join makes one call of the commits that share it: the keys of the shard and the head of the arguments once.
func join(batch []*request, c *call) []any {
	parts, keys, args := 0, commitKeys, firstKey+commitKeys+commitHead
	for _, r := range batch {
		if r.flight.call == c {
			parts++
			keys += r.keys - commitKeys
			args += len(r.argv) - firstKey - commitKeys - commitHead
		}
	}
	argv := append(make([]any, 0, args), c.argv[:firstKey+commitKeys]...)
	argv[firstKey-1] = keys
	for _, r := range batch {
		if r.flight.call == c {
			argv = append(argv, r.argv[firstKey+commitKeys:firstKey+r.keys]...)
		}
	}
	head := len(argv)
	argv = append(argv, c.argv[firstKey+batch[0].keys:][:commitHead]...)
	for _, r := range batch {
		if r.flight.call == c {
			argv = append(argv, r.argv[firstKey+r.keys+commitHead])
		}
	}
	for _, r := range batch {
		if r.flight.call == c {
			argv = append(argv, r.argv[firstKey+r.keys+commitHead+1:]...)
		}
	}
	argv[head] = parts
	if c.input != nil {
		argv[head+1], argv[head+2], argv[head+3] = c.input.Stream, c.input.Group, c.input.Consumer
	}
	return argv
}
