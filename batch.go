package luatx

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/luatx/luatx/internal/slot"
)

// BatchItem is one transaction of TransactBatch.
type BatchItem struct {
	// Aggregate is what the transaction is about; every key shares the slot of its tag. Required.
	Aggregate string
	// Func records the transaction, as Transact's does. Required.
	Func func(*Tx) error
	// Options are those of Transact. Defaults to none.
	Options []Option
}

// BatchResult is what became of one item of a batch.
type BatchResult struct {
	Result
	// Err is the error that Transact would have returned.
	Err error
}

// TransactBatch commits many transactions in few round trips: those of one slot share a script, those of one node
// a pipeline, and all nodes work at once. It answers in the order of the items.
//
// Each item is a transaction for itself, and is committed, refused or repeated as Transact would: what becomes of
// one changes nothing for the others, and the batch as a whole is not atomic. The functions run one after the
// other, before anything is sent; the commits have no order among them.
func (t *Transactor) TransactBatch(ctx context.Context, items []BatchItem) []BatchResult {
	results := make([]BatchResult, len(items))
	open := make([]*batchCall, 0, len(items))
	for i, item := range items {
		c, err := t.newInvocation(ctx, item.Aggregate, item.Func, item.Options)
		if err != nil {
			results[i].Err = err
			continue
		}
		open = append(open, &batchCall{invocation: c, BatchResult: &results[i]})
	}
	open = t.checkAll(ctx, open)
	for n := 0; ; n++ {
		if open = t.attempt(ctx, open); len(open) == 0 {
			return results
		}
		if again, _ := t.retries(ctx, n, ErrConflict); !again { // each item has its own
			return results
		}
	}
}

type batchCall struct {
	*invocation
	*BatchResult
	tx *Tx // to be committed; nil: there is nothing to commit
}

// checkAll runs the check that comes before the first commit, on the nodes of all calls at once. It returns the calls
// that may go on; the others have their error.
func (t *Transactor) checkAll(ctx context.Context, calls []*batchCall) []*batchCall {
	if t.checked.Load() {
		return calls
	}
	var checks sync.WaitGroup
	for _, c := range calls {
		checks.Go(func() { c.Err = t.ensureChecked(ctx, t.shards.Shard(slot.OfTag(c.tag))) })
	}
	checks.Wait()
	return slices.DeleteFunc(calls, func(c *batchCall) bool { return c.Err != nil })
}

// attempt runs the functions of the calls and commits what they recorded. It returns the calls to be run again.
func (t *Transactor) attempt(ctx context.Context, calls []*batchCall) []*batchCall {
	var batch []*Tx
	for _, c := range calls {
		if c.tx, c.Result, c.Err = t.run(ctx, c.invocation); c.tx != nil {
			batch = append(batch, c.tx)
		}
	}
	t.send(ctx, batch)
	var again []*batchCall
	for _, c := range calls {
		if c.tx != nil {
			c.Result, c.Err = t.finish(ctx, c.tx)
		}
		if errors.Is(c.Err, ErrConflict) {
			again = append(again, c)
		}
	}
	return again
}
