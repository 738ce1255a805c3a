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
	// Aggregate is the id of the aggregate that the transaction changes. Every key must share the slot of its tag. Required.
	Aggregate string
	// Func records the transaction, like the function passed to Transact. Required.
	Func func(*Tx) error
	// Options are the options of Transact. Defaults to none.
	Options []Option
}

// BatchResult is the result of one item of a batch.
type BatchResult struct {
	Result
	// Err is the error that Transact would have returned.
	Err error
}

// TransactBatch commits many transactions in few round trips and returns the results in the order of the items. Transactions of
// one slot share a script, the scripts for one node share a pipeline, and all nodes work in parallel. The functions run one after
// the other before anything is sent. The order of the commits is not defined. Ctx bounds the batch as it bounds Transact.
//
// Each item is a separate transaction that is committed, rejected or retried as Transact would do it. The outcome of one item
// does not affect the others, and the batch as a whole is not atomic.
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
		if again, _ := t.retries(ctx, n, ErrConflict); !again { // each item has its own error
			return results
		}
	}
}

type batchCall struct {
	*invocation
	*BatchResult
	tx *Tx // the transaction to commit; nil if there is nothing to commit
}

// checkAll runs the check before the first commit on the nodes of all calls in parallel. It returns the calls that may continue
// and sets Err of the others.
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

// attempt runs the functions of the calls, commits what they recorded, and returns the calls that must run again.
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
			t.memory.reclaim(c.tx)
		}
		if errors.Is(c.Err, ErrConflict) {
			again = append(again, c)
		}
	}
	return again
}
