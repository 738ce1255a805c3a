package guard

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// scans limits the requests that read lists or whole shards at a time, in total and for each identity.
type scans struct {
	most, mostEach int

	mu      sync.Mutex
	running int
	each    map[string]int // by name
}

func newScans(most int) *scans {
	return &scans{most: most, mostEach: max(1, most/4), each: map[string]int{}}
}

// begin counts a scan of an identity until done is called, or returns a problem with status 429.
func (s *scans) begin(name string) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := &Problem{Status: http.StatusTooManyRequests, RetryAfter: time.Second}
	switch {
	case s.each[name] >= s.mostEach:
		busy.Detail = fmt.Sprintf("%d such requests of %s are running already; wait for one to end", s.each[name], name)
		return nil, busy
	case s.running >= s.most:
		busy.Detail = fmt.Sprintf("%d such requests are running already; wait for one to end", s.running)
		return nil, busy
	}
	s.running++
	s.each[name]++
	return func() { s.end(name) }, nil
}

func (s *scans) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if s.each[name]--; s.each[name] == 0 {
		delete(s.each, name)
	}
}
