package luatx

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// The pauses between runs of a handler whose guarded reads have changed: random, up to 1 ms, doubled up to 64 ms.
const (
	firstConflictPause = time.Millisecond
	lastConflictPause  = 64 * time.Millisecond
)

// again pauses, and reports true, where the run n of a handler, from 0, ended with an error that asks for another
// one: what it has read changed before its commit. Else it returns what to tell the caller.
func (t *Transactor) again(ctx context.Context, n int, err error) (bool, error) {
	if err == nil || !errors.Is(err, ErrConflict) || n >= t.cfg.ConflictRetries {
		return false, err
	}
	timer := time.NewTimer(rand.N(min(firstConflictPause<<min(n, 10), lastConflictPause)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, errors.Join(err, ctx.Err())
	case <-timer.C:
		return true, nil
	}
}

// failed tells what an error of the transaction's function means: nothing, where its id has been committed already
// and the error may come from that; a conflict, where it had read what was not to stay; else itself.
func (tx *Tx) failed(ctx context.Context, cause error) error {
	if tx.known(ctx) {
		return nil
	}
	if err := tx.verify(ctx); errors.Is(err, ErrConflict) {
		return err
	}
	return cause
}
