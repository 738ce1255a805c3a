package script

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

// of returns the plan of a transaction of so many arguments, a string, as lua/commit.lua reads it. Strings: the server
// restores strings alone.
func (p *plans) of(tx *Tx, size int, strings bool) any {
	var few [64]byte
	b := append(few[:0], byte(size>>16), byte(size>>8), byte(size), byte(tx.Input.Ack))
	b = binary.BigEndian.AppendUint32(b, uint32(tx.Delay.Milliseconds()))
	b = binary.BigEndian.AppendUint16(b, uint16(len(tx.Guards)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(tx.Events)))
	flags := byte(0)
	if tx.Keep {
		flags |= 1
	}
	if !tx.plainEvents() {
		flags |= 2
	}
	if strings {
		flags |= 4
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(len(tx.Commands)))
	for i := range tx.Commands {
		c := &tx.Commands[i]
		b = binary.BigEndian.AppendUint16(append(b, c.Head[0], c.Head[1]-'0'), uint16(c.arguments()))
	}
	return p.intern(b)
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
