package relay

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// schedule decides which slot a worker visits next. Only one worker visits a slot at a time, unless the slot is rich. Other
// workers need not wait for a claim if the slot has more than a batch of events.
type schedule struct {
	mu    sync.Mutex
	due   map[int]*visit
	queue visits
	wake  chan struct{} // holds a token if the head may have changed
}

// visit is a slot that is scheduled or is being visited.
type visit struct {
	slot   int
	at     time.Time
	index  int  // in the queue, or -1 if the slot is only with workers
	busy   int  // number of workers that visit the slot
	rich   bool // the last visit left more events
	missed bool // add was called during a visit
	again  time.Time
}

func newSchedule() *schedule {
	return &schedule{due: make(map[int]*visit), wake: make(chan struct{}, 1)}
}

// add schedules a visit of a slot, at the given time or earlier.
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

// next waits for the next slot that is due. It returns false when ctx has ended.
func (s *schedule) next(ctx context.Context) (int, bool) {
	for {
		slot, wait := s.popDue()
		if wait <= 0 {
			return slot, true
		}
		select {
		case <-ctx.Done():
			return 0, false
		case <-s.wake:
		case <-time.After(wait):
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
		v.at = time.Now() // slots that are already due come first
		heap.Fix(&s.queue, 0)
	} else {
		heap.Pop(&s.queue)
	}
	v.busy++
	if len(s.queue) > 0 {
		s.signal() // so that another worker sees the new head
	}
	return v.slot, 0
}

// done ends a visit of a slot and schedules the next one, or none if again is zero. The slot is rich if it has more events.
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
	case again.IsZero(): // another worker still visits the slot
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

// visits is a heap ordered by time.
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
