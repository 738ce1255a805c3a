package identity_test

import (
	"testing"

	"github.com/luatx/luatx/internal/identity"
)

var message = identity.ID{Aggregate: "account-7", Scope: "shop/bill", Source: "/orders", ID: "42"}

// TestDigestIsFrozen checks the bytes that inboxes store. If they changed, a deployed service would apply its messages again.
func TestDigestIsFrozen(t *testing.T) {
	t.Parallel()
	if got, want := message.Digest(), "\x71\x46\xc4\x2f\x07\x4f\xdd\x5b\x07\xaa\x34\x1b\x11\xfb\xc4\x72"; got != want {
		t.Errorf("digest %x, want %x", got, want)
	}
}

// TestEventIDIsFrozen checks the ids of events that are derived from a message, because a second run must create the same ones.
func TestEventIDIsFrozen(t *testing.T) {
	t.Parallel()
	if got, want := message.EventID(3), "09dee5e0-7655-840b-950a-0d6e0b1ce272"; got != want {
		t.Errorf("event id %s, want %s", got, want)
	}
}

// TestEntryIDIsFrozen checks the ids of messages that a transaction adds to streams.
func TestEntryIDIsFrozen(t *testing.T) {
	t.Parallel()
	if got, want := message.EntryID(3), "afba54fb-3677-8ea5-a8be-f312c9263895"; got != want {
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
		for _, text := range []string{id.Digest(), id.EventID(0), id.EventID(1)} {
			if other, taken := seen[text]; taken {
				t.Errorf("%+v and %+v share %q", id, other, text)
			}
			seen[text] = id
		}
	}
}
