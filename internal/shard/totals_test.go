package shard

import (
	"maps"
	"testing"
)

func TestCountsOfMalformedTotalsAreZero(t *testing.T) {
	t.Parallel()
	for totals, want := range map[string][5]int64{
		"1 200 30 4 500":                     {1, 200, 31, 4, 500},
		"1 200 30 4 500 idle":                {1, 200, 31, 4, 500},
		"3 200 -2 4 500":                     {3, 200, 1, 4, 500},
		"-1 200 30 4 500":                    {},
		"1 200 --2 4 500":                    {},
		"1 200 30 4 500 busy":                {},
		"":                                   {},
		"many":                               {},
		"1 200 30 4":                         {},
		"1 200 30 4 500 6":                   {},
		"1 200 30 4 -500":                    {},
		"1 200 30 4 five":                    {},
		"1 2 3 4 9223372036854775807":        {1, 2, 4, 4, 9223372036854775807},
		"1 2 3 4 9223372036854775808":        {},
		"1 2 3 4 99999999999999999999999999": {},
	} {
		all := map[string]int64{"sent": 7}
		for i, name := range []string{"events", "bytes", "enqueued", "parked", "parked_bytes"} {
			all[name] = want[i]
		}
		if got := CountsOf(map[string]string{"sent": "7", "totals": totals}); !maps.Equal(got, all) {
			t.Errorf("%q: %v, want %v", totals, got, all)
		}
	}
}
