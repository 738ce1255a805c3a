package luatx

import (
	"context"
	"errors"
	"time"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

// conflictBackoff is the pause between runs of a handler whose guarded reads have changed.
var conflictBackoff = message.Backoff{Base: time.Millisecond, Max: 64 * time.Millisecond}

// again pauses, and reports true, where the run n of a handler, from 0, ended with an error that asks for another
// one: what it has read changed before its commit. Else it returns what to tell the caller.
func (t *Transactor) again(ctx context.Context, n int, err error) (bool, error) {
	if err == nil || !errors.Is(err, ErrConflict) || n >= t.cfg.ConflictRetries {
		return false, err
	}
	if !sleep.For(ctx, conflictBackoff.Delay(n+1)) {
		return false, errors.Join(err, ctx.Err())
	}
	return true, nil
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
