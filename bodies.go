package luatx

import (
	"sync"

	"github.com/luatx/luatx/internal/commit"
)

// bodies is the memory of large events that are committed, for the events of later transactions. Without it, the garbage collector
// would take a third of the client's CPU time for events of 100 KB.
type bodies struct{ free sync.Pool }

// largeBody is the size in bytes from which the memory of an event is worth keeping.
const largeBody = 8 << 10

// take returns memory for an event, or nil.
func (b *bodies) take() []byte {
	if body, ok := b.free.Get().(*[]byte); ok {
		return *body
	}
	return nil
}

// reclaim keeps the memory of a transaction's events if no one else has it: the server has replied to the only request, and no
// inline relay publishes the events.
func (b *bodies) reclaim(tx *Tx) {
	c := &tx.commit
	if tx.relay != nil || c.Tries != 1 || c.Outcome.State != commit.Committed {
		return
	}
	for i := range c.Events {
		if e := &c.Events[i]; e.Own && cap(e.Body) >= largeBody {
			body := e.Body
			e.Body = nil
			b.free.Put(&body)
		}
	}
}
