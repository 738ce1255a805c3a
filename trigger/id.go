package trigger

import (
	"cmp"
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

// behind is the least id above this one; Redis 6.0 has no exclusive ranges.
func behind(id string) string {
	ms, seq := splitID(id)
	if seq == math.MaxUint64 {
		ms++
	}
	return strconv.FormatUint(ms, 10) + "-" + strconv.FormatUint(seq+1, 10)
}

func compareIDs(a, b string) int {
	ams, aseq := splitID(a)
	bms, bseq := splitID(b)
	return cmp.Or(cmp.Compare(ams, bms), cmp.Compare(aseq, bseq))
}

// maxReason bounds the reason in a dead letter, in bytes.
const maxReason = 1024

// bounded cuts a text between two characters.
func bounded(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
