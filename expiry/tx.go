package expiry

import (
	"context"
	"fmt"
	"time"

	"github.com/luatx/luatx"
)

// RecordIn opens the timer of a subject with a transaction: the timer exists if the transaction commits. The subject's aggregate
// must be that of the transaction, or share its slot; otherwise RecordIn returns luatx.ErrCrossSlot. If the subject has an open
// timer, it stays unchanged. RecordIn does not check for a revocation, because the transaction's own id prevents late copies.
func (s *Store) RecordIn(tx *luatx.Tx, subject string, due time.Time) error {
	return s.zadd(tx, "record", "NX", subject, due)
}

// ExtendIn moves the open timer of a subject with a transaction. It does nothing if no timer is open.
func (s *Store) ExtendIn(tx *luatx.Tx, subject string, due time.Time) error {
	return s.zadd(tx, "extend", "XX", subject, due)
}

// CancelIn ends the open timer of a subject with a transaction, like Cancel.
func (s *Store) CancelIn(tx *luatx.Tx, subject string) error {
	return s.record(tx, "cancel", subject, "ZREM")
}

func (s *Store) zadd(tx *luatx.Tx, what, when, subject string, due time.Time) error {
	if err := checkDue(what, subject, due); err != nil {
		return err
	}
	return s.record(tx, what, subject, "ZADD", when, due.UnixMilli())
}

// record records a command on the timers of the subject's shard, with the subject as its last argument.
func (s *Store) record(tx *luatx.Tx, what, subject, name string, args ...any) error {
	shard, err := s.shard(subject)
	if err != nil {
		return err
	}
	args = append(append([]any{name, shard.TimersKey()}, args...), subject)
	if err := luatx.Queued(tx.Pipeline().Do(context.Background(), args...)); err != nil {
		return fmt.Errorf("expiry: %s %q: %w", what, subject, err)
	}
	return nil
}
