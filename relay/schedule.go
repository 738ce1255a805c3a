package relay

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// schedule says which slot to look at next. A slot is looked at by one worker at a time, unless it is rich: a claim waits
// for the server, and where there is more than a batch others need not wait for it.
type schedule struct {
	mu    sync.Mutex
	due   map[int]*visit
	queue visits
	wake  chan struct{} // holds a token when the head may have changed
}

// visit is a slot that is to be looked at, or is being looked at.
type visit struct {
	slot   int
	at     time.Time
	index  int  // in the queue; -1: it is not there, workers have it
	busy   int  // how many
	rich   bool // the last look has left more
	missed bool // somebody asked for it meanwhile
	again  time.Time
}

func newSchedule() *schedule {
	return &schedule{due: make(map[int]*visit), wake: make(chan struct{}, 1)}
}

// add asks for a look at a slot, at the given time or earlier.
func (s *schedule) add(slot int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, known := s.due[slot]
	switch {
	case !known:
		v = &visit{slot: slot, at: at}
		s.due[slot] = v
		heap.Push(&s.queue, v)
	case v.busy > 0:
		if !v.missed || at.Before(v.again) {
			v.missed, v.again = true, at
		}
		return
	case at.Before(v.at):
		v.at = at
		heap.Fix(&s.queue, v.index)
	default:
		return
	}
	s.signal()
}

func (s *schedule) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next waits for the next slot that is due; false when ctx has ended.
func (s *schedule) next(ctx context.Context) (int, bool) {
	for {
		slot, wait := s.popDue()
		if wait <= 0 {
			return slot, true
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return 0, false
		case <-s.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// popDue removes and returns the head if it is due; otherwise it returns how long to wait.
func (s *schedule) popDue() (slot int, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return 0, idleInterval
	}
	if wait := time.Until(s.queue[0].at); wait > 0 {
		return 0, wait
	}
	v := s.queue[0]
	if v.rich {
		v.at = time.Now() // those that are due have their turn before it
		heap.Fix(&s.queue, 0)
	} else {
		heap.Pop(&s.queue)
	}
	v.busy++
	if len(s.queue) > 0 {
		s.signal() // another worker looks at the new head
	}
	return v.slot, 0
}

// done gives a slot back after a look at it; the zero time: there is nothing to come back for. Rich: there is more.
func (s *schedule) done(slot int, again time.Time, rich bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.due[slot]
	v.busy--
	v.rich = rich
	if v.missed && (again.IsZero() || v.again.Before(again)) {
		again = v.again
	}
	v.missed = false
	switch {
	case again.IsZero() && v.index < 0 && v.busy == 0:
		delete(s.due, slot)
		return
	case again.IsZero(): // another one looks at it
		return
	case v.index < 0:
		v.at = again
		heap.Push(&s.queue, v)
	case again.Before(v.at):
		v.at = again
		heap.Fix(&s.queue, v.index)
	}
	s.signal()
}

// visits is a heap by time.
type visits []*visit

func (q visits) Len() int           { return len(q) }
func (q visits) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q visits) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *visits) Push(x any) {
	v, _ := x.(*visit)
	v.index = len(*q)
	*q = append(*q, v)
}

// Pop implements heap.Interface.
func (q *visits) Pop() any {
	old := *q
	last := old[len(old)-1]
	last.index = -1
	*q = old[:len(old)-1]
	return last
}
