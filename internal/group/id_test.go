package group

import (
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestBeforeReturnsThePreviousEntryID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"5-1": "5-0", "5-0": "4-18446744073709551615", "0-1": "0-0", "0-0": "0-0", "1-0": "0-18446744073709551615", "12-12": "12-11"} {
		assert.Equal(t, Before(id), want, "Before(%s)", id)
	}
}

func TestBehindReturnsTheNextEntryID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"5-0": "5-1", "4-18446744073709551615": "5-0", "0-0": "0-1", "12-12": "12-13"} {
		assert.Equal(t, Behind(id), want, "Behind(%s)", id)
	}
}

func TestCompareOrdersEntryIDs(t *testing.T) {
	t.Parallel()
	for _, ids := range [][2]string{{"5-0", "5-1"}, {"5-9", "5-10"}, {"9-0", "10-0"}, {"4-18446744073709551615", "5-0"}} {
		if Compare(ids[0], ids[1]) != -1 || Compare(ids[1], ids[0]) != 1 || Compare(ids[0], ids[0]) != 0 {
			t.Errorf("%s is not below %s", ids[0], ids[1])
		}
	}
}

func TestOnlyAnIDSelectsOneEntry(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"0-0": true, "5-12": true, "12-5": true, "18446744073709551615-18446744073709551615": true, "5": false, "5-": false, "05-1": false, "-": false, "+": false, "(5-1": false, "": false} {
		assert.Equal(t, IsID(text), want, "%q is an id", text)
	}
}
