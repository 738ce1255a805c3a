package luatx

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Gathering lets messages that were read together commit together, in one round trip, though each handler runs for
// itself: a commit under its context waits until the others have come as far, or have ended. Each stays a transaction
// of its own, with its own outcome. It is what stream.Subscriber.Consume is made of.
type Gathering struct {
	t       *Transactor
	ctx     context.Context
	linger  time.Duration
	tail    func() []redis.Cmder
	mu      sync.Mutex
	missing int // handlers that neither wait nor have ended
	waiting []*prepared
	done    chan struct{} // closed when those that wait are answered
	timer   *time.Timer
}

// Gather begins a gathering of n handlers. Each runs under the gathering's Context and calls Leave when it has ended.
//
// What commits goes out when all others wait or have left, or after linger; zero lingers for ever. The tail's
// commands, which read what comes next, go out once, behind the first commits in the same pipeline, and bear their
// own errors; it is not called where nothing is committed. Ctx bounds the commits.
func (t *Transactor) Gather(ctx context.Context, n int, linger time.Duration, tail func() []redis.Cmder) *Gathering {
	return &Gathering{t: t, ctx: ctx, linger: linger, tail: tail, missing: n}
}

// gathered is what commits together.
type gathered struct {
	waiting []*prepared
	done    chan struct{}
}

type gatheringKey struct{}

// Context returns a context under which Middleware's commits gather.
func (g *Gathering) Context(parent context.Context) context.Context {
	return context.WithValue(parent, gatheringKey{}, g)
}

// Leave says that a handler has ended.
func (g *Gathering) Leave() {
	g.mu.Lock()
	g.missing--
	batch := g.complete()
	g.mu.Unlock()
	g.commit(batch)
}

// join commits a transaction with the others', and returns when it is answered.
func (g *Gathering) join(p *prepared) {
	g.mu.Lock()
	g.missing--
	if g.waiting == nil {
		g.waiting, g.done = make([]*prepared, 0, g.missing+1), make(chan struct{})
	}
	g.waiting = append(g.waiting, p)
	done := g.done
	batch := g.complete()
	if batch.waiting == nil && g.timer == nil && g.linger > 0 {
		g.timer = time.AfterFunc(g.linger, g.late)
	}
	g.mu.Unlock()
	g.commit(batch)
	<-done
}

// late commits what waits for a handler that takes long.
func (g *Gathering) late() {
	g.mu.Lock()
	batch := g.take()
	g.mu.Unlock()
	g.commit(batch)
}

// complete takes what waits where there is nobody left to wait for. The lock is held.
func (g *Gathering) complete() gathered {
	if g.missing > 0 {
		return gathered{}
	}
	return g.take()
}

// take takes what waits; those handlers are under way again. The lock is held.
func (g *Gathering) take() gathered {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	batch := gathered{g.waiting, g.done}
	g.waiting, g.done = nil, nil
	g.missing += len(batch.waiting)
	return batch
}

func (g *Gathering) commit(batch gathered) {
	if len(batch.waiting) == 0 {
		return
	}
	var tail []redis.Cmder
	g.mu.Lock()
	if g.tail != nil {
		tail, g.tail = g.tail(), nil
	}
	g.mu.Unlock()
	inOrder(batch.waiting)
	g.t.send(g.ctx, batch.waiting, tail...)
	close(batch.done)
}

// inOrder sorts by entry, as far as they come from streams: one look of the script shows who owns all of them, where each
// that is out of order costs a look more.
func inOrder(batch []*prepared) {
	slices.SortFunc(batch, func(a, b *prepared) int { return compareEntries(a.Tx.Input.Entry, b.Tx.Input.Entry) })
}

// compareEntries compares ids of entries, as servers write them.
func compareEntries(a, b string) int {
	aTime, aNumber, _ := strings.Cut(a, "-")
	bTime, bNumber, _ := strings.Cut(b, "-")
	return cmp.Or(
		cmp.Compare(len(aTime), len(bTime)), cmp.Compare(aTime, bTime),
		cmp.Compare(len(aNumber), len(bNumber)), cmp.Compare(aNumber, bNumber),
	)
}
