package expiry_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestRevokeNeedsNoEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, redistest.Shared(t).Client(t), expiry.Config{})
	f.record("a", past)
	if ok, err := f.Revoke(redistest.Soon(t), "a", nil); !ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
	f.decides("a", past, expiry.Revoked)
	f.has(nil)
}

var errNoKey = errors.New("no key")

func TestKeyThatATransactionWritesRevokesTheTimerInItsSlot(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		var keys luatx.Keyspace
		f := newFixture(t, client, expiry.Config{RevokedKey: func(subject string) (string, error) {
			switch subject {
			case "astray":
				return "elsewhere", nil
			case "failing":
				return "", errNoKey
			}
			return keys.Key(subject, "revoked")
		}})
		keys = f.tr.Keyspace()
		f.record("a", past)
		f.record("b", past)
		_, err := f.tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			key, err := tx.Key("revoked")
			if err != nil {
				return err
			}
			return tx.Pipeline().Set(redistest.Soon(t), key, 1, 0).Err()
		})
		redistest.Must(t, err)
		f.decides("a", past, expiry.Revoked)
		f.decides("b", past, expiry.Enqueued)
		if left := f.due(10); len(left) > 0 {
			t.Errorf("%q are due still", left)
		}
		f.has(map[string]string{"b": "expired"})
		timer := expiry.Timer{Subject: "astray", Due: past}
		if got, err := f.Decide(redistest.Soon(t), timer, expired("astray"), time.Time{}); got != 0 || !errors.Is(err, luatx.ErrCrossSlot) {
			t.Errorf("a key of another slot: %v", err)
		}
		timer.Subject = "failing"
		if got, err := f.Decide(redistest.Soon(t), timer, expired("failing"), time.Time{}); got != 0 || !errors.Is(err, errNoKey) {
			t.Errorf("no key: %v, %v", got, err)
		}
	})
}

func TestRevokeRejectsAKnownIDWithAnotherBody(t *testing.T) {
	t.Parallel()
	f := newFixture(t, redistest.Shared(t).Client(t), expiry.Config{}, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) })
	for _, subject := range []string{"a", "b"} {
		f.record(subject, past)
		event := revoked(subject)
		event.Attributes["id"] = "same"
		ok, err := f.Revoke(redistest.Soon(t), subject, event)
		if ok != (subject == "a") || (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "the event same with another body") {
			t.Errorf("%s: %t, %v", subject, ok, err)
		}
	}
	if left := f.due(2); !slices.Equal(left, []string{"b"}) {
		t.Errorf("%q are open", left)
	}
	f.has(map[string]string{"a": "revoked"})
}
