package shard

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestCountsWithoutMarksAndWithWhatHasLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bytes, left     string
		bytesIs, events int64
	}{
		{"", "", 0, 3},
		{"200", "", 200, 3},
		{"200", "30", 200, 33},
		{"200", "-2", 200, 1},
		{"1125899906842824", "30", 200, 33},     // idle
		{"2251799813685448", "30", 200, 33},     // with parked events
		{"3377699720528072", "30", 200, 33},     // both
		{"3377699720527872", "30", 0, 33},       // both
		{"-200", "30", 0, 33},                   // malformed
		{"many", "30", 0, 33},                   // malformed
		{"200", "many", 200, 3},                 // malformed
		{"1125899906842623", "0", 1<<50 - 1, 3}, // the largest size
	} {
		fields := map[string]string{"sent": "7", "parked_bytes": "9"}
		for name, text := range map[string]string{"bytes": c.bytes, "left": c.left} {
			if text != "" {
				fields[name] = text
			}
		}
		want := map[string]int64{"sent": 7, "parked_bytes": 9, "bytes": c.bytesIs, "enqueued": c.events}
		if got := CountsOf(fields, 3); !maps.Equal(got, want) {
			t.Errorf("bytes %q, left %q: %v, want %v", c.bytes, c.left, got, want)
		}
	}
}

// TestShardWhoseEventsChangeStatesMeanwhileIsCountedAgain checks that the number of enqueued events is that of one moment, at most
// four looks at a shard, and that events that were only added do not count as a change.
func TestShardWhoseEventsChangeStatesMeanwhileIsCountedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		left     []string // before and after each look
		bytes    string   // after each look
		looks    int
		enqueued int64
	}{
		"quiet":             {[]string{"5", "5"}, "10", 1, 8},
		"added to":          {[]string{"5", "5"}, "20", 1, 8},
		"settled once":      {[]string{"5", "6", "6", "6"}, "10", 2, 9},
		"settled all along": {[]string{"1", "2", "3", "4", "5", "6", "7", "8"}, "10", 4, 11},
	} {
		left := map[int][]string{1: slices.Clone(c.left), 2: {"4", "4"}}
		s, server := answering(t, func(cmd []string) any {
			switch strings.ToLower(cmd[0]) {
			case "hgetall":
				n, bytes := slotOf(cmd[1]), "10"
				if len(left[n])%2 == 1 {
					bytes = c.bytes
				}
				now := left[n][0]
				left[n] = left[n][1:]
				return []any{"left", now, "bytes", bytes}
			case "hlen":
				return 6
			case "exists":
				return 1
			}
			return map[string]int{"parked": 1, "sent": 2, "pending": 3}[cmd[1][strings.LastIndexByte(cmd[1], ':')+1:]]
		})
		counts, err := s.Counts(t.Context(), []int{1, 2})
		if err != nil || counts[1].Totals["enqueued"] != c.enqueued || counts[2].Totals["enqueued"] != 7 || counts[1].Events() != 3 {
			t.Errorf("%s: %+v, %v; want %d and 7 enqueued events", name, counts, err, c.enqueued)
		}
		if n := len(server.Heard("hlen")) - 1; n != c.looks {
			t.Errorf("%s: %d looks, want %d", name, n, c.looks)
		}
	}
}
