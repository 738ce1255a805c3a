package measure

import (
	"math/bits"
	"time"
)

// The histogram has 32 buckets for each power of two of nanoseconds, so that a time is known to 3 %.
const (
	fineBits = 5
	fine     = 1 << fineBits
	buckets  = (64 - fineBits + 1) * fine
)

// histogram counts times without keeping them.
type histogram struct {
	counts [buckets]uint32
	total  uint64
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(uint64(max(d, 0)))]++
	h.total++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// quantile is the time that the share q of all does not exceed; 0 where there is none.
func (h *histogram) quantile(q float64) time.Duration {
	want := max(uint64(q*float64(h.total)+.5), 1)
	var seen uint64
	for i, n := range h.counts {
		if seen += uint64(n); seen >= want {
			return time.Duration(middle(i))
		}
	}
	return 0
}

// bucket finds the bucket of a number: small ones have their own, others share it with those of the same leading bits.
func bucket(n uint64) int {
	if n < fine {
		return int(n)
	}
	shift := bits.Len64(n) - fineBits - 1
	return (shift+1)*fine + int(n>>shift) - fine
}

// middle is the number in the middle of a bucket.
func middle(i int) uint64 {
	if i < fine {
		return uint64(i)
	}
	shift := i/fine - 1
	return (uint64(i%fine+fine) << shift) + (uint64(1)<<shift)/2
}
