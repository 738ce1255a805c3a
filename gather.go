package luatx

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/link"
)

// gathering implements link.Gathering.
type gathering struct {
	t       *Transactor
	ctx     context.Context
	linger  time.Duration
	tail    func() ([]redis.Cmder, func())
	mu      sync.Mutex
	missing int // handlers that are neither waiting nor ended
	waiting []*Tx
	done    chan struct{} // closed when the waiting transactions have their outcomes
	timer   *time.Timer
}

// gather implements link.Inside.Gather.
func (t *Transactor) gather(ctx context.Context, n int, linger time.Duration, tail func() ([]redis.Cmder, func())) link.Gathering {
	return &gathering{t: t, ctx: ctx, linger: linger, tail: tail, missing: n}
}

// gathered holds transactions that commit together.
type gathered struct {
	waiting []*Tx
	done    chan struct{}
}

// Context implements link.Gathering.
func (g *gathering) Context(parent context.Context) context.Context {
	return context.WithValue(parent, gatheringKey{g.t}, g)
}

// Leave implements link.Gathering.
func (g *gathering) Leave() {
	g.mu.Lock()
	g.missing--
	batch := g.complete()
	g.mu.Unlock()
	g.commit(batch)
}

// join adds a transaction to the gathering and returns when it has its outcome.
func (g *gathering) join(tx *Tx) {
	g.mu.Lock()
	g.missing--
	if g.waiting == nil {
		g.waiting, g.done = make([]*Tx, 0, g.missing+1), make(chan struct{})
	}
	g.waiting = append(g.waiting, tx)
	done := g.done
	batch := g.complete()
	if batch.waiting == nil && g.timer == nil && g.linger > 0 {
		g.timer = time.AfterFunc(g.linger, g.late)
	}
	g.mu.Unlock()
	g.commit(batch)
	<-done
}

// late commits the waiting transactions without the handlers that take longer than linger.
func (g *gathering) late() {
	g.mu.Lock()
	batch := g.drain()
	g.mu.Unlock()
	g.commit(batch)
}

// complete removes and returns the waiting transactions if no handler is missing. The caller holds the lock.
func (g *gathering) complete() gathered {
	if g.missing > 0 {
		return gathered{}
	}
	return g.drain()
}

// drain removes and returns the waiting transactions, whose handlers continue. The caller holds the lock.
func (g *gathering) drain() gathered {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	batch := gathered{g.waiting, g.done}
	g.waiting, g.done = nil, nil
	g.missing += len(batch.waiting)
	return batch
}

func (g *gathering) commit(batch gathered) {
	if len(batch.waiting) == 0 {
		return
	}
	var tail []redis.Cmder
	var sent func()
	g.mu.Lock()
	if g.tail != nil {
		tail, sent = g.tail()
		g.tail = nil
	}
	g.mu.Unlock()
	inOrder(batch.waiting)
	g.t.send(g.ctx, batch.waiting, tail...)
	if sent != nil {
		sent()
	}
	close(batch.done)
}

// inOrder sorts transactions by their input entries, and those without one by their offsets. The script checks the ownership of
// entries in ascending order with one lookup; each entry out of order needs one more.
func inOrder(batch []*Tx) {
	slices.SortFunc(batch, func(a, b *Tx) int {
		return cmp.Or(compareEntries(a.commit.Input.Entry, b.commit.Input.Entry), strings.Compare(a.offset(), b.offset()))
	})
}

// offset returns the offset of the position that the commit moves, or an empty text.
func (tx *Tx) offset() string {
	if claim := link.ClaimOf(tx); claim != nil {
		return claim.Position.Offset
	}
	return ""
}

// compareEntries compares stream entry ids in the server's format.
func compareEntries(a, b string) int {
	aTime, aNumber, _ := strings.Cut(a, "-")
	bTime, bNumber, _ := strings.Cut(b, "-")
	return cmp.Or(
		cmp.Compare(len(aTime), len(bTime)), cmp.Compare(aTime, bTime),
		cmp.Compare(len(aNumber), len(bNumber)), cmp.Compare(aNumber, bNumber),
	)
}
