package stream

import (
	"math"
	"strconv"
	"strings"
)

// splitID reads an entry id as the server writes it.
func splitID(id string) (ms, seq uint64) {
	left, right, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(left, 10, 64)
	seq, _ = strconv.ParseUint(right, 10, 64)
	return ms, seq
}

func joinID(ms, seq uint64) string {
	return strconv.FormatUint(ms, 10) + "-" + strconv.FormatUint(seq, 10)
}

// before is the greatest id below this one.
func before(id string) string {
	ms, seq := splitID(id)
	switch {
	case seq > 0:
		return joinID(ms, seq-1)
	case ms > 0:
		return joinID(ms-1, math.MaxUint64)
	default:
		return "0-0"
	}
}

// behind is the least id above this one; Redis 6.0 has no exclusive ranges.
func behind(id string) string {
	ms, seq := splitID(id)
	if seq == math.MaxUint64 {
		return joinID(ms+1, 0)
	}
	return joinID(ms, seq+1)
}

// after reports whether id a is greater than b.
func after(a, b string) bool {
	ams, aseq := splitID(a)
	bms, bseq := splitID(b)
	return ams > bms || ams == bms && aseq > bseq
}
