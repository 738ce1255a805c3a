package inbox

import "testing"

// TestTenureNamesThePlaceBeforeAMessageOnlyIfItIsBelow also passes offsets that are not above the highest one.
func TestTenureNamesThePlaceBeforeAMessageOnlyIfItIsBelow(t *testing.T) {
	t.Parallel()
	var tenure tenure
	for _, offset := range []string{"2", "5", "4"} {
		tenure.pass(offset)
	}
	for offset, want := range map[string]string{"4": "", "5": "", "6": "5"} {
		if got := tenure.before(offset); got != want {
			t.Errorf("before %s: %q, want %q", offset, got, want)
		}
	}
}
