package inbox

import (
	"maps"
	"sync"

	"github.com/luatx/luatx/message"
)

// claims are the positions that the messages of a message.Tenure move. Messages that are handled together may have several handlers,
// and so several positions.
type claims struct {
	mu    sync.Mutex
	known map[string]claim // by offset
}

// claim is the field of a message's position, and the offset of the message in front of it, or "" if it is the first one.
type claim struct{ field, after string }

// claimsKey is the key under which a message.Tenure holds the claims of a namespace.
type claimsKey string

func claimsOf(of *message.Tenure, namespace string) *claims {
	known, _ := of.Value(claimsKey(namespace), func() any { return &claims{known: make(map[string]claim)} }).(*claims)
	return known
}

// add notes the position of a message. The first of several messages forgets those of earlier ones.
func (c *claims) add(offset string, of claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.after == "" {
		maps.DeleteFunc(c.known, func(earlier string, _ claim) bool { return earlier < offset })
	}
	c.known[offset] = of
}

// before returns the offset of the nearest message in front of one that moves the same position, or "" if there is none. A message whose
// position is not known counts, because it may be the same one.
func (c *claims) before(of claim) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of.after != "" {
		front, ok := c.known[of.after]
		if !ok || front.field == of.field {
			break
		}
		of.after = front.after
	}
	return of.after
}
