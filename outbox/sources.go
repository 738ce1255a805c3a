package outbox

import (
	"cmp"
	"time"
)

// source is a shard whose rows come in the order of their time.
type source interface {
	// head returns the time of the next row, or an earlier one if that is not known yet, and the slot.
	head() (time.Time, int)
}

// sources are a heap by the time of their next row. It merges the rows of many shards.
type sources[S source] []S

func (h sources[S]) Len() int      { return len(h) }
func (h sources[S]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h sources[S]) Less(i, j int) bool {
	a, slotA := h[i].head()
	b, slotB := h[j].head()
	return cmp.Or(a.Compare(b), cmp.Compare(slotA, slotB)) < 0
}

// Push implements heap.Interface. Nobody calls it: all sources are in the heap from the beginning.
func (h *sources[S]) Push(any) {}

// Pop implements heap.Interface.
func (h *sources[S]) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
