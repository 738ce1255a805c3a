package expiry_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/luatx/luatx/expiry"
)

// TestEventIDsMatchAnotherImplementationOfRFC9562 matters because the ids identify events in users' brokers.
func TestEventIDsMatchAnotherImplementationOfRFC9562(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		due  time.Time
		want string
	}{
		{"golden", noon, "8a2e3144-7a1e-3c07-a8b6-f1811b03fc9d"},
		{"below a millisecond", noon.Add(999 * time.Microsecond), "8a2e3144-7a1e-3c07-a8b6-f1811b03fc9d"},
		{"another zone", noon.In(time.FixedZone("", 3600)), "8a2e3144-7a1e-3c07-a8b6-f1811b03fc9d"},
	} {
		if got := expiry.EventID("ticket-17", c.due); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got := expiry.RevokedID("ticket-17"); got != "9ec19c99-0324-307a-86c7-1104b1f229ed" {
		t.Errorf("revoked: %s", got)
	}
}

var uuid3 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-3[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// FuzzEventID tests that an id is a UUID of version 3, the same for the same timer, and different for every other timer.
func FuzzEventID(f *testing.F) {
	f.Add("a", int64(0), "a", int64(1))
	f.Add("a|1", int64(1_700_000_000_000), "a", int64(1_700_000_000_000))
	f.Add("", int64(253_402_300_799_999), "|", int64(5))
	f.Fuzz(func(t *testing.T, subject string, ms int64, other string, otherMS int64) {
		const last = 253_402_300_799_999 // of the year 9999
		ms, otherMS = max(0, min(ms, last)), max(0, min(otherMS, last))
		id := expiry.EventID(subject, time.UnixMilli(ms))
		if !uuid3.MatchString(id) {
			t.Errorf("%q is no UUID of version 3", id)
		}
		same := subject == other && ms == otherMS
		if again := expiry.EventID(other, time.UnixMilli(otherMS)); (again == id) != same {
			t.Errorf("%q %d and %q %d: %s and %s", subject, ms, other, otherMS, id, again)
		}
	})
}
