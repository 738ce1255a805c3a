package shard

import (
	"strconv"
	"strings"
)

// fieldTotals is the field of counts that contains the gauges; see internal/lua/_totals.lua.
const fieldTotals = "totals"

var gauges = [...]string{"events", "bytes", "enqueued", "parked", "parked_bytes"}

// CountsOf returns the counts of a shard by name, from the fields of the key counts. If totals is missing or malformed, each gauge
// is 0, as it is for the scripts.
func CountsOf(fields map[string]string) map[string]int64 {
	counts := integers(fields)
	delete(counts, fieldTotals)
	words, values := strings.Split(strings.TrimSuffix(fields[fieldTotals], " idle"), " "), [len(gauges)]int64{}
	for i, word := range words {
		n, err := strconv.ParseUint(word, 10, 63)
		if err != nil || len(words) != len(gauges) {
			values = [len(gauges)]int64{}
			break
		}
		values[i] = int64(n)
	}
	for i, name := range gauges {
		counts[name] = values[i]
	}
	return counts
}
