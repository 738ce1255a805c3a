package group

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

func TestDeadLetterOfMoreThan2000TextsIsWrittenInOneField(t *testing.T) {
	t.Parallel()
	for n, packed := range map[int]bool{2: false, 2000: false, 2002: true} {
		fields := make([]string, n)
		for i := range fields {
			fields[i] = "f" + strconv.Itoa(i)
		}
		at := time.UnixMilli(1_700_000_000_000)
		want := Dead{
			ID: "1-0", Stream: "s", Entry: "7-0", Group: "g", Consumer: "c", Reason: "why", Deliveries: 3, First: at, Last: at, Fields: fields,
		}
		got := parseDead(want.ID, want.Write())
		if got.Packed != packed || !slices.Equal(got.Fields, fields) || got.Stream != "s" || got.Deliveries != 3 || !got.First.Equal(at) {
			t.Errorf("%d texts: packed %t, %d texts come back, of %q after %d deliveries", n, got.Packed, len(got.Fields), got.Stream, got.Deliveries)
		}
	}
}
