package shard

import (
	"strconv"
	"strings"
)

// fieldTotals is the field of counts that contains the gauges; see internal/lua/_totals.lua.
const fieldTotals = "totals"

// gauges are the names of the numbers in totals. The number in the place of enqueued is that of the events that have left the outbox.
var gauges = [...]string{"events", "bytes", "enqueued", "parked", "parked_bytes"}

const left = 2

// CountsOf returns the counts of a shard by name, from the fields of the key counts. If totals is missing or malformed, each gauge
// is 0, as it is for the scripts.
func CountsOf(fields map[string]string) map[string]int64 {
	counts := integers(fields)
	delete(counts, fieldTotals)
	words, values := strings.Split(strings.TrimSuffix(fields[fieldTotals], " idle"), " "), [len(gauges)]int64{}
	for i, word := range words {
		digits := word
		if i == left {
			digits = strings.TrimPrefix(word, "-")
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || len(words) != len(gauges) {
			values = [len(gauges)]int64{}
			break
		}
		if values[i] = int64(n); digits != word {
			values[i] = -values[i]
		}
	}
	values[left] += values[0]
	for i, name := range gauges {
		counts[name] = values[i]
	}
	return counts
}
