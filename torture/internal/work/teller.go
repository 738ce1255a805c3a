package work

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/history"
)

const (
	// travellers is the number of tellers of a process that call any branch. Each of the others calls a single branch, so that
	// a branch that does not reply only delays its own callers.
	travellers = 8
	// batchShare is the share of turns that are a TransactBatch, of at most batchMost calls.
	batchShare, batchMost = 0.1, 5
	// hurryShare is the share of tries whose deadline is at most hurry.
	hurryShare, hurry = 0.3, 500 * time.Millisecond
	againShare        = 0.15 // share of applied calls that are repeated
	persistShare      = 0.5  // share of failed calls that are retried
)

// errShort is the error of a call with insufficient funds.
var errShort = errors.New("insufficient funds")

// teller makes calls, one after another.
type teller struct {
	*process
	rng  *rand.Rand
	ids  *atomic.Int64
	home *ground.Branch // nil for a traveller
}

// call starts the tellers and the producer, which share the rate.
func (p *process) call(ctx context.Context, running *sync.WaitGroup) {
	turns := make(chan struct{}, 64)
	running.Go(func() { p.pace(ctx, turns) })
	var ids atomic.Int64
	for n := range travellers + len(p.branches) {
		t := teller{process: p, rng: rand.New(rand.NewPCG(p.Seed, uint64(n))), ids: &ids}
		if n >= travellers {
			t.home = &p.branches[n-travellers]
		}
		running.Go(func() {
			for range turns {
				t.turn(ctx)
			}
		})
	}
}

// pace hands out turns at the rate until the process is quiet.
func (p *process) pace(ctx context.Context, turns chan<- struct{}) {
	defer close(turns)
	const every = 5 * time.Millisecond
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	most := float64(2 * (travellers + len(p.branches)))
	for due := 0.0; ; {
		select {
		case <-ctx.Done():
			return
		case <-p.quiet:
			return
		case <-ticker.C:
		}
		for due = min(due+p.Rate*every.Seconds(), most); due >= 1; due-- {
			select {
			case turns <- struct{}{}:
			default: // all tellers are busy
			}
		}
	}
}

// call is one call of a teller: its id, its meaning, and how its transaction is recorded. The function answer returns its
// result after the transaction.
type call struct {
	line   history.Line
	branch ground.Branch
	record func(ctx context.Context, tx *luatx.Tx) error
	answer func(history.Outcome) string
}

func (c *call) item(ctx context.Context) luatx.BatchItem {
	options := []luatx.Option{luatx.WithID(c.line.ID)}
	if hash(c.line.ID)%3 == 0 { // repeated calls get the original replies
		options = append(options, luatx.KeepReplies())
	}
	return luatx.BatchItem{
		Aggregate: c.branch.Name, Options: options,
		Func: func(tx *luatx.Tx) error { return c.record(ctx, tx) },
	}
}

func hash(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum32()
}

func (t *teller) turn(ctx context.Context) {
	switch at := t.rng.Float64(); {
	case at < 0.25:
		t.produce(ctx)
	case at < 0.4:
		t.carry(ctx, t.cellCall())
	case at < 0.45:
		t.peek(ctx)
	case at < 0.5:
		t.carry(ctx, t.doomed())
	case at < 0.5+batchShare:
		t.batch(ctx)
	default:
		t.carry(ctx, t.bankCall())
	}
}

// somewhere returns a branch to call.
func (t *teller) somewhere() ground.Branch {
	if t.home != nil {
		return *t.home
	}
	return t.branches[t.rng.IntN(len(t.branches))]
}

// newID returns the id of a call or an input. Ids sort by process.
func (t *teller) newID(kind string) string {
	return fmt.Sprintf("%s-%s-%d", kind, t.Name, t.ids.Add(1))
}

func (t *teller) carry(ctx context.Context, c *call) {
	t.begin(c)
	t.settle(ctx, c, t.try(ctx, c))
}

func (t *teller) begin(c *call) {
	line := c.line
	line.Kind, line.Start = history.Begun, t.now()
	t.note(line)
}

// settle records the result of a try. It retries the call until its outcome is known, and repeats some calls once more.
func (t *teller) settle(ctx context.Context, c *call, line history.Line) {
	for {
		line.Again = t.wants(ctx, line.Outcome)
		t.note(line)
		if line.Outcome == history.Committed || line.Outcome == history.Replayed {
			t.notes.committed(c.branch.N)
		}
		if !line.Again {
			return
		}
		line = t.try(ctx, c)
	}
}

// wants reports whether to make a call again.
func (t *teller) wants(ctx context.Context, outcome history.Outcome) bool {
	if ctx.Err() != nil {
		return false
	}
	switch outcome {
	case history.Unknown:
		return true
	case history.Nothing:
		select {
		case <-t.quiet: // in the end, retry only calls with an unknown outcome
			return false
		default:
			return t.rng.Float64() < persistShare
		}
	case history.Committed, history.Replayed:
		return t.rng.Float64() < againShare
	default:
		return false
	}
}

// try makes a call once, within a random deadline.
func (t *teller) try(ctx context.Context, c *call) history.Line {
	bounded, cancel := t.hurried(ctx)
	defer cancel()
	line := c.line
	line.Start = t.now()
	item := c.item(bounded)
	result, err := t.tr.Transact(bounded, item.Aggregate, item.Func, item.Options...)
	return t.finishTry(ctx, c, line, result, err)
}

func (t *teller) hurried(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.rng.Float64() < hurryShare {
		return context.WithTimeout(ctx, time.Duration(t.rng.Int64N(int64(hurry))))
	}
	return context.WithCancel(ctx)
}

// finishTry completes the line of a try. It resolves every other unknown outcome by its receipt.
func (t *teller) finishTry(ctx context.Context, c *call, line history.Line, result luatx.Result, err error) history.Line {
	line.Kind = history.Told
	if unknown, ok := errors.AsType[*luatx.UnknownError](err); ok && t.rng.IntN(2) == 0 {
		if found, asked := t.tr.Resolve(ctx, unknown.Receipt); asked == nil || errors.Is(asked, luatx.ErrExpired) {
			result, err = found, asked
		}
	}
	line.End = t.now()
	line.Outcome, line.Replicated = outcome(result, err), result.Replicated
	if err != nil && line.Outcome != history.Short {
		line.Err = err.Error()
	}
	if line.Outcome.In() || line.Outcome == history.Short {
		line.Value = c.answer(line.Outcome)
	}
	return line
}

func outcome(result luatx.Result, err error) history.Outcome {
	var aborted *luatx.AbortError
	switch {
	case err == nil:
		return history.Outcome(result.Outcome.String())
	case errors.Is(err, luatx.ErrOutcomeUnknown):
		return history.Unknown
	case errors.Is(err, errShort), errors.As(err, &aborted) && aborted.Reason == errShort.Error():
		return history.Short
	default:
		return history.Nothing
	}
}

// batch makes several calls at once. The outcome of one does not depend on the others.
func (t *teller) batch(ctx context.Context) {
	calls := make([]*call, 2+t.rng.IntN(batchMost-1))
	items := make([]luatx.BatchItem, len(calls))
	bounded, cancel := t.hurried(ctx)
	defer cancel()
	for i := range calls {
		calls[i] = t.bankCall()
		items[i] = calls[i].item(bounded)
		t.begin(calls[i])
	}
	start := t.now()
	results := t.tr.TransactBatch(bounded, items)
	for i, c := range calls {
		line := c.line
		line.Start = start
		t.settle(ctx, c, t.finishTry(ctx, c, line, results[i].Result, results[i].Err))
	}
}
