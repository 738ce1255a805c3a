package group

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// splitID parses an entry id in the format of the server.
func splitID(id string) (ms, seq uint64) {
	left, right, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(left, 10, 64)
	seq, _ = strconv.ParseUint(right, 10, 64)
	return ms, seq
}

// IsID reports whether a text is an entry id in the format of the server. Other texts select many entries in a range.
func IsID(text string) bool {
	ms, seq := splitID(text)
	return text == joinID(ms, seq)
}

// Time returns the time in an entry id, which is a time of the server's clock.
func Time(id string) time.Time {
	ms, _ := splitID(id)
	return time.UnixMilli(int64(ms)) //nolint:gosec // an id beyond that has no time
}

func joinID(ms, seq uint64) string {
	return strconv.FormatUint(ms, 10) + "-" + strconv.FormatUint(seq, 10)
}

// Offset returns an entry id as digits, so that the texts sort in the order of the ids.
func Offset(id string) string {
	ms, seq := splitID(id)
	return fmt.Sprintf("%020d%020d", ms, seq)
}

// Before returns the greatest id below this one, or "0-0" if there is none. Redis 6.0 needs it because it has no
// exclusive ranges.
func Before(id string) string {
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

// Behind returns the smallest id above this one.
func Behind(id string) string {
	ms, seq := splitID(id)
	if seq == math.MaxUint64 {
		return joinID(ms+1, 0)
	}
	return joinID(ms, seq+1)
}

// Compare compares entry ids as cmp.Compare does.
func Compare(a, b string) int {
	ams, aseq := splitID(a)
	bms, bseq := splitID(b)
	return cmp.Or(cmp.Compare(ams, bms), cmp.Compare(aseq, bseq))
}
