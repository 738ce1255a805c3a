package trigger

import (
	"regexp"
	"testing"
)

func TestConsumerNamesAreRandomUUIDsOfVersion4(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	digits := map[int]map[byte]bool{}
	for range 500 {
		id := uuid()
		if !form.MatchString(id) {
			t.Fatalf("%q is no UUID of version 4", id)
		}
		for i := range id {
			if digits[i] == nil {
				digits[i] = map[byte]bool{}
			}
			digits[i][id[i]] = true
		}
	}
	for i, c := range "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx" {
		if want := map[rune]int{'x': 16, 'y': 4, '4': 1, '-': 1}[c]; len(digits[i]) != want {
			t.Errorf("place %d has %d digits, want %d", i, len(digits[i]), want)
		}
	}
}
