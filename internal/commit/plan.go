package commit

import (
	"encoding/binary"
	"maps"
	"sync"
	"sync/atomic"
)

// maxPlans is how many plans are kept: a service has as many as kinds of transactions.
const maxPlans = 256

// plans keeps the plans of transactions, for those of one kind to send the same.
type plans struct {
	mu    sync.Mutex
	known atomic.Pointer[map[string]any]
}

// of returns the plan of a commit, a string, as internal/lua/commit.lua reads it. Strings: the server restores strings alone.
func (p *plans) of(c *Commit, strings bool) any {
	var few [64]byte
	b := append(few[:0], byte(c.args>>16), byte(c.args>>8), byte(c.args), c.Input.plan())
	b = binary.BigEndian.AppendUint32(b, uint32(c.Delay.Milliseconds()))
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.Guards)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.Events)))
	flags := byte(0)
	if c.Keep {
		flags |= 1
	}
	if !c.plainEvents() {
		flags |= 2
	}
	if strings {
		flags |= 4
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.Commands)))
	for i := range c.Commands {
		command := &c.Commands[i]
		b = binary.BigEndian.AppendUint16(append(b, command.Head[0], command.Head[1]-'0'), uint16(command.arguments()))
	}
	return p.intern(b)
}

// plan returns the byte of the plan that stands for the input.
func (i *Input) plan() byte {
	if i.Strict && i.Ack != AckNone {
		return byte(i.Ack) | 4
	}
	return byte(i.Ack)
}

func (p *plans) intern(plan []byte) any {
	known := p.known.Load()
	if known != nil {
		if arg, ok := (*known)[string(plan)]; ok {
			return arg
		}
	}
	var arg any = string(plan)
	if known != nil && len(*known) >= maxPlans {
		return arg
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	more := map[string]any{string(plan): arg}
	if known = p.known.Load(); known != nil {
		maps.Copy(more, *known)
	}
	p.known.Store(&more)
	return arg
}
