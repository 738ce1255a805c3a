package commit

import (
	"sync"

	"github.com/luatx/luatx/internal/group"
)

// maxStreams is the number of streams beyond which takenKeys forgets them all.
const maxStreams = 1000

// takenKeys remembers the keys of the records of takeovers, because creating one takes 2 % of the client's time for a commit.
type takenKeys struct {
	mu    sync.RWMutex
	known map[string]*string // by the stream
}

// of returns the key for a stream.
func (t *takenKeys) of(stream string) *string {
	t.mu.RLock()
	key := t.known[stream]
	t.mu.RUnlock()
	if key != nil {
		return key
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= maxStreams {
		t.known = make(map[string]*string)
	}
	made := group.TakenKey(stream)
	t.known[stream] = &made
	return &made
}
