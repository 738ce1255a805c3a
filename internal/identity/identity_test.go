package identity_test

import (
	"testing"

	"github.com/luatx/luatx/internal/identity"
)

var message = identity.ID{Aggregate: "account-7", Scope: "shop/bill", Source: "/orders", ID: "42"}

// TestDigestIsFrozen checks the bytes that inboxes store. If they changed, a deployed service would apply its messages again.
func TestDigestIsFrozen(t *testing.T) {
	t.Parallel()
	if got, want := message.Sum().Digest(), "\x71\x46\xc4\x2f\x07\x4f\xdd\x5b\x07\xaa\x34\x1b\x11\xfb\xc4\x72"; got != want {
		t.Errorf("digest %x, want %x", got, want)
	}
}

// TestEventIDIsFrozen checks the ids of events that are derived from a message, because a second run must create the same ones.
func TestEventIDIsFrozen(t *testing.T) {
	t.Parallel()
	if got, want := message.Sum().EventID(3), "21520c24-4fe0-832c-97af-5ed006ac435a"; got != want {
		t.Errorf("event id %s, want %s", got, want)
	}
}

// TestEntryIDIsFrozen checks the ids of messages that a transaction adds to streams.
func TestEntryIDIsFrozen(t *testing.T) {
	t.Parallel()
	if got, want := message.Sum().EntryID(3), "21520c24-4fe0-832c-97af-a12ff953bca5"; got != want {
		t.Errorf("entry id %s, want %s", got, want)
	}
}

func TestEveryFieldDistinguishesMessages(t *testing.T) {
	t.Parallel()
	seen := map[string]identity.ID{}
	for _, id := range []identity.ID{
		{},
		message,
		{"a", "b", "c", "d"},
		{"ab", "", "c", "d"},
		{"a", "bc", "", "d"},
		{"a", "b", "cd", ""},
		{"", "ab", "c", "d"},
	} {
		sum := id.Sum()
		for _, text := range []string{sum.Digest(), sum.EventID(0), sum.EventID(1), sum.EventID(1 << 40), sum.EntryID(0), sum.EntryID(1)} {
			if other, taken := seen[text]; taken {
				t.Errorf("%+v and %+v share %q", id, other, text)
			}
			seen[text] = id
		}
	}
}
