package expiry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
)

// transact runs a transaction of the ticket's aggregate, which also writes the ticket.
func (f fixture) transact(ticket string, act func(*luatx.Tx) error) error {
	_, err := f.tr.Transact(redistest.Soon(f.t), ticket, func(tx *luatx.Tx) error {
		key, err := tx.Key("ticket")
		if err != nil {
			return err
		}
		tx.Pipeline().Set(f.t.Context(), key, "minted", 0)
		return act(tx)
	})
	return err
}

func TestTransactionsRecordExtendAndCancelTimers(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{})
		for _, ticket := range []string{"a", "b", "c"} {
			redistest.Must(t, f.transact(ticket, func(tx *luatx.Tx) error { return f.RecordIn(tx, ticket, past) }))
		}
		redistest.Must(t, f.transact("a", func(tx *luatx.Tx) error { return f.RecordIn(tx, "a", future) })) // already open
		redistest.Must(t, f.transact("b", func(tx *luatx.Tx) error { return f.ExtendIn(tx, "b", future) }))
		redistest.Must(t, f.transact("c", func(tx *luatx.Tx) error { return f.CancelIn(tx, "c") }))
		redistest.Must(t, f.transact("d", func(tx *luatx.Tx) error { return f.ExtendIn(tx, "d", past) })) // not open
		f.decides("a", past, expiry.Enqueued)
		f.decides("b", future, expiry.NotDue)
		f.decides("c", past, expiry.NotDue)
		f.decides("d", past, expiry.NotDue)
		f.has(map[string]string{"a": "expired"})
	})
}

func TestTimerOfAFailedTransactionDoesNotChange(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{})
		for _, subject := range []string{"extended", "cancelled"} {
			f.record(subject, past)
		}
		for subject, act := range map[string]func(*luatx.Tx) error{
			"recorded":  func(tx *luatx.Tx) error { return f.RecordIn(tx, "recorded", past) },
			"extended":  func(tx *luatx.Tx) error { return f.ExtendIn(tx, "extended", future) },
			"cancelled": func(tx *luatx.Tx) error { return f.CancelIn(tx, "cancelled") },
		} {
			err := f.transact(subject, func(tx *luatx.Tx) error {
				if err := act(tx); err != nil {
					return err
				}
				key, err := tx.Key("ticket")
				if err != nil {
					return err
				}
				return luatx.Queued(tx.Pipeline().LPush(t.Context(), key, "it is a string"))
			})
			if failed := new(luatx.CommandError); !errors.As(err, &failed) {
				t.Errorf("%s: %v", subject, err)
			}
		}
		f.decides("recorded", past, expiry.NotDue)
		f.decides("extended", past, expiry.Enqueued)
		f.decides("cancelled", past, expiry.Enqueued)
	})
}

func TestRecordInRejectsTimersOfOtherSlots(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	f := newFixture(t, client, expiry.Config{Aggregate: func(string) (string, error) { return "elsewhere", nil }})
	if err := f.transact("a", func(tx *luatx.Tx) error { return f.RecordIn(tx, "a", past) }); !errors.Is(err, luatx.ErrCrossSlot) {
		t.Errorf("a timer of another slot: %v", err)
	}
	if err := f.transact("elsewhere", func(tx *luatx.Tx) error { return f.RecordIn(tx, "", past) }); err == nil {
		t.Error("a timer of no subject was recorded")
	}
	if err := f.transact("elsewhere", func(tx *luatx.Tx) error { return f.RecordIn(tx, "a", time.Time{}) }); err == nil || !strings.Contains(err.Error(), `record "a": the year is 1`) {
		t.Error("a timer of the year 1 was recorded")
	}
	err := f.transact("elsewhere", func(tx *luatx.Tx) error {
		key, err := tx.Key()
		if err != nil {
			return err
		}
		own := link.Of(f.tr).Scripts.Shard(slot.Of(key)).TimersKey()
		return tx.Pipeline().ZAdd(t.Context(), string(own), redis.Z{Score: 1, Member: "a"}).Err()
	})
	if !errors.Is(err, luatx.ErrCommandRefused) {
		t.Errorf("a handler on luatx's own key: %v", err)
	}
}

func TestEveryCallRejectsASubjectOrAnAggregateThatIsInvalid(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	for want, f := range map[string]fixture{
		`the subject is ""`:    newFixture(t, client, expiry.Config{}),
		`the aggregate of "a"`: newFixture(t, client, expiry.Config{Aggregate: func(string) (string, error) { return "", nil }}),
	} {
		ctx, subject := redistest.Soon(t), ""
		if strings.Contains(want, `"a"`) {
			subject = "a"
		}
		for name, err := range map[string]error{
			"record":    f.Record(ctx, subject, past),
			"extend":    second(f.Extend(ctx, subject, past)),
			"cancel":    second(f.Cancel(ctx, subject)),
			"revoke":    second(f.Revoke(ctx, subject, nil)),
			"decide":    second(f.Decide(ctx, expiry.Timer{Subject: subject, Due: past}, expired("a"), time.Time{})),
			"record in": f.transact("a", func(tx *luatx.Tx) error { return f.RecordIn(tx, subject, past) }),
			"extend in": f.transact("a", func(tx *luatx.Tx) error { return f.ExtendIn(tx, subject, past) }),
			"cancel in": f.transact("a", func(tx *luatx.Tx) error { return f.CancelIn(tx, subject) }),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
	}
}
