package shard

// The fields of counts that are not counters. See internal/lua/_outbox.lua.
const (
	fieldBytes = "bytes"
	fieldLeft  = "left"
)

// marks is the sum of the numbers that mark the field bytes; see internal/lua/_bytes.lua.
const marks = 1<<50 | 1<<51

// CountsOf returns the counts of a shard by name, from the fields of the key counts and the number of events that are neither sent
// nor parked. A malformed field counts as 0, as it does for the scripts.
func CountsOf(fields map[string]string, events int64) map[string]int64 {
	counts := integers(fields)
	counts[fieldBytes] = max(0, counts[fieldBytes]) &^ marks
	counts["enqueued"] = events + counts[fieldLeft]
	delete(counts, fieldLeft)
	return counts
}
