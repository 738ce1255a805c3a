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

// share lays a batch out as calls: what is of one slot shares a script.
func share(batch []*request) []*call {
	var calls []*call
	for i, first := range batch {
		if first.flight.call != nil {
			continue
		}
		c := &call{script: first.script, argv: first.argv, durability: first.durability}
		calls = append(calls, c)
		first.flight.call = c
		rows := 1
		for _, r := range batch[i+1:] {
			if r.slot == first.slot {
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
	for _, r := range batch {
		if r.flight.call != c {
			continue
		}
		if rest := r.argv[firstKey+r.keys:]; len(argv) == head {
			argv = append(argv, rest...)
		} else {
			argv = append(argv, rest[commitHead:]...)
		}
	}
	argv[head] = parts
	return argv
}
