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

// again runs attempt, and once more as long as what it has read changes before its commit, up to the bound.
func (t *Transactor) again(ctx context.Context, attempt func() error) error {
	for n := 0; ; n++ {
		err := attempt()
		if !errors.Is(err, ErrConflict) || n >= t.cfg.ConflictRetries {
			return err
		}
		timer := time.NewTimer(rand.N(min(firstConflictPause<<min(n, 10), lastConflictPause)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, ctx.Err())
		case <-timer.C:
		}
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
