package matrix

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
)

// ledger is a number of callers that commit while a network is cut, with their results.
type ledger struct {
	t      *testing.T
	client redis.UniversalClient
	tr     *luatx.Transactor

	acked  atomic.Int64
	mu     sync.Mutex
	told   map[string]told // by id
	unsure []string
}

// told is when a commit was acknowledged to its caller.
type told struct {
	aggregate string
	at        time.Time
}

// aggregates are spread over the masters.
var aggregates = []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}

func newLedger(t *testing.T, client redis.UniversalClient) *ledger {
	t.Helper()
	tr, err := luatx.New(client, luatx.Config{Namespace: "matrix", CommitTimeout: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	return &ledger{t: t, client: client, tr: tr, told: map[string]told{}}
}

func (l *ledger) key(aggregate, part string) string {
	l.t.Helper()
	key, err := l.tr.Keyspace().Key(aggregate, part)
	must(l.t, err)
	return key
}

// commit makes one call: a count, a member and an event.
func (l *ledger) commit(ctx context.Context, aggregate, id string) (luatx.Result, error) {
	return l.tr.Transact(ctx, aggregate, func(tx *luatx.Tx) error {
		tx.Pipeline().Incr(ctx, l.key(aggregate, "count"))
		tx.Pipeline().SAdd(ctx, l.key(aggregate, "ids"), id)
		return tx.Emit(luatx.Event{ID: id, Data: id})
	}, luatx.WithID(id))
}

// run starts callers that commit until stop is called.
func (l *ledger) run(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	for n, aggregate := range aggregates {
		running.Go(func() {
			ticker := time.NewTicker(5 * time.Millisecond)
			defer ticker.Stop()
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-ticker.C:
				}
				id := fmt.Sprintf("%d-%d", n, i)
				_, err := l.commit(ctx, aggregate, id)
				l.mu.Lock()
				if err == nil {
					l.told[id] = told{aggregate, time.Now()}
					l.acked.Add(1)
				} else {
					l.unsure = append(l.unsure, id)
				}
				l.mu.Unlock()
			}
		})
	}
	return sync.OnceFunc(func() { close(done); running.Wait() })
}

// audit checks that every commit is present once and complete. It returns the acknowledged commits that are lost.
func (l *ledger) audit(ctx context.Context) (lost []told) {
	l.t.Helper()
	there := make(map[string]bool)
	for _, aggregate := range aggregates {
		ids, err := l.client.SMembers(ctx, l.key(aggregate, "ids")).Result()
		must(l.t, err)
		if n, _ := l.client.Get(ctx, l.key(aggregate, "count")).Int(); n != len(ids) {
			l.t.Errorf("aggregate %s counted %d of %d commits", aggregate, n, len(ids))
		}
		slot, err := l.client.ClusterKeySlot(ctx, l.key(aggregate, "ids")).Result()
		must(l.t, err)
		events, err := l.client.HKeys(ctx, link.Of(l.tr).Scripts.Shard(int(slot)).Key("entries")).Result()
		must(l.t, err)
		slices.Sort(ids)
		slices.Sort(events)
		if !slices.Equal(ids, events) {
			l.t.Errorf("aggregate %s has %d commits and %d events, which are not the same", aggregate, len(ids), len(events))
		}
		for _, id := range ids {
			there[id] = true
		}
	}
	for id, when := range l.told {
		if !there[id] {
			lost = append(lost, when)
		}
	}
	return lost
}

// repeat sends every id with an unknown outcome again, so that all are committed.
func (l *ledger) repeat(ctx context.Context) {
	l.t.Helper()
	for _, id := range l.unsure {
		var n int
		_, err := fmt.Sscanf(id, "%d-", &n)
		must(l.t, err)
		if _, err := l.commit(ctx, aggregates[n], id); err != nil {
			l.t.Errorf("%s again: %v", id, err)
		}
		l.told[id] = told{aggregate: aggregates[n], at: time.Now()}
	}
}

// partition cuts off a master for longer than the other nodes wait for it, and then a replica, while callers commit. It
// returns a summary of the results.
func partition(t *testing.T, image string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	c := startCluster(t, image)
	l := newLedger(t, c.client())
	stop := l.run(ctx)
	defer stop()
	moves := func() {
		before := l.acked.Load()
		c.eventually(ctx, "commits", func() error {
			if n := l.acked.Load() - before; n < 100 {
				return fmt.Errorf("%d since", n)
			}
			return nil
		})
	}
	moves()
	master := c.masters(ctx)[0]
	from := time.Now()
	c.cut(ctx, master)
	c.eventually(ctx, "a replica to take over", func() error {
		if n := len(c.masters(ctx)); n != masters {
			return fmt.Errorf("%d masters", n)
		}
		return nil
	})
	to := time.Now()
	moves()
	c.heal(ctx, master)
	c.settled(ctx)
	replica := c.nodes[slices.IndexFunc(c.nodes, func(n *node) bool { return !slices.Contains(c.masters(ctx), n) })]
	c.cut(ctx, replica)
	moves()
	c.heal(ctx, replica)
	c.settled(ctx)
	moves()
	stop()

	lost := l.audit(ctx)
	for _, one := range lost {
		if one.at.Before(from.Add(-time.Second)) || one.at.After(to.Add(time.Second)) {
			t.Errorf("a commit of %s that was acknowledged %v after the cut is gone", one.aggregate, one.at.Sub(from))
		}
	}
	l.repeat(ctx)
	if left := l.audit(ctx); len(left) > len(lost) {
		t.Errorf("%d commits are gone after all was sent again, %d before", len(left), len(lost))
	}
	return fmt.Sprintf("%d commits, %d lost with their master, %d sent again", len(l.told), len(lost), len(l.unsure))
}
