package stream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/process"
)

// orphanAfter is the number of leases for which a partition must be free before a member takes it beyond its share, because
// the member whose share it is cannot take it.
const orphanAfter = 2

var (
	leaseScript     = redis.NewScript(lua.Script("lease", nil))
	membersScript   = redis.NewScript(lua.Script("members", nil))
	partitionScript = redis.NewScript(lua.Script("partition", nil))
)

// member is one run of a PartitionedSubscriber.
type member struct {
	*PartitionedSubscriber
	name       string
	detached   context.Context // outlives ctx: leases are extended and released
	work       context.Context // of the handlers; ends some time after ctx
	most       int             // number of messages of a partition that are delivered at once
	give       giver
	partitions []*partition
	outage     outage
	tenures    sync.WaitGroup
	list       *process.List // the list of processes in which the member is registered; may be nil
	inFlight   atomic.Int64  // number of messages in flight

	mu     sync.Mutex
	share  int // number of partitions that this member should hold
	held   int
	trying int // attempts to take a lease within the share
}

// giver delivers messages. It returns when they are settled, or when it need not wait for that any more. When ctx has
// ended, it delivers nothing more.
type giver func(ctx context.Context, p *partition, run []*item)

// join creates the groups and adds the member to the list.
func (s *PartitionedSubscriber) join(ctx context.Context, list *process.List, most int, give giver) (m *member, err error) {
	if !s.active.CompareAndSwap(false, true) {
		return nil, ErrSubscribed
	}
	defer func() {
		if err != nil {
			s.active.Store(false)
		}
	}()
	m = &member{PartitionedSubscriber: s, name: consumerName(), detached: context.WithoutCancel(ctx), most: most, give: give, list: list}
	m.outage.log = s.cfg.Logger.With("stream", s.cfg.Stream, "group", s.cfg.Group)
	for i := range s.subs {
		p, err := newPartition(ctx, m, i)
		if err != nil {
			return nil, err
		}
		m.partitions = append(m.partitions, p)
	}
	if err := m.beat(ctx); err != nil {
		return nil, fmt.Errorf("stream: join group %q of %q: %w", s.cfg.Group, s.cfg.Stream, err)
	}
	return m, nil
}

// interval is the time between two checks of leases and members.
func (s *PartitionedSubscriber) interval() time.Duration { return s.cfg.Lease / 3 }

// run holds the member's share until ctx ends.
func (m *member) run(ctx context.Context) {
	work, cancel := context.WithCancel(m.detached)
	defer cancel()
	m.work = work
	defer context.AfterFunc(ctx, func() { time.AfterFunc(m.cfg.ShutdownTimeout, cancel) })()
	listed, unlist := context.WithCancel(m.detached)
	var keeping sync.WaitGroup
	keeping.Go(func() { m.list.Keep(listed, process.Consumer, m.report) })
	tick := time.Tick(m.interval())
	looked := time.Now()
	for ctx.Err() == nil {
		orphans := time.Since(looked) >= m.cfg.Lease
		if orphans {
			looked = time.Now()
		}
		m.acquire(ctx, orphans)
		select {
		case <-ctx.Done():
		case <-tick:
			if err := m.beat(ctx); err != nil && ctx.Err() == nil {
				m.outage.begins("beat", err)
			} else {
				m.outage.over("beat")
			}
		}
	}
	m.leave()
	m.tenures.Wait()
	unlist()
	keeping.Wait()
	m.active.Store(false)
}

// beat renews the member in the list and computes its share. If that fails, the share does not change.
func (m *member) beat(ctx context.Context) error {
	names, err := m.updateList(ctx, "beat")
	if err != nil {
		return err
	}
	slices.Sort(names)
	rank, _ := slices.BinarySearch(names, m.name)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.share = share(rank, len(names), len(m.partitions))
	return nil
}

// share returns how many of n partitions belong to the member with the given rank, from 0. The shares add up to n and
// differ by at most one.
func share(rank, members, n int) int {
	if rank < n%members {
		return n/members + 1
	}
	return n / members
}

func (m *member) leave() {
	ctx, cancel := context.WithTimeout(m.detached, finishTimeout)
	defer cancel()
	if _, err := m.updateList(ctx, "leave"); err != nil {
		m.outage.log.Warn("stream: member not removed", "member", m.name, "error", err)
	}
}

// updateList renews the member in the list of members, or removes it. It returns the names of all members.
func (m *member) updateList(ctx context.Context, action string) ([]string, error) {
	return membersScript.Run(ctx, m.client, []string{m.void[0], m.members}, action, m.name, m.cfg.Lease.Milliseconds()).StringSlice()
}

// acquire takes free partitions up to the share, and beyond it those that no other member takes. A master that does not
// reply delays the other partitions by at most an interval for each of its own.
func (m *member) acquire(ctx context.Context, orphans bool) {
	for _, i := range rand.Perm(len(m.partitions)) {
		p := m.partitions[i]
		within, ok := m.wants(p, orphans)
		if !ok {
			continue
		}
		answered := make(chan struct{})
		m.tenures.Go(func() { m.tenure(ctx, p, within, answered) })
		select {
		case <-answered:
		case <-time.After(m.interval()):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// wants reports whether to try for a partition, and whether that is within the share.
func (m *member) wants(p *partition, orphans bool) (within, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	within = m.held+m.trying < m.share
	if p.busy || !within && !orphans {
		return false, false
	}
	p.busy = true
	if within {
		m.trying++
	}
	return within, true
}

// tenure tries to take a partition, and reads it for as long as the member holds it.
func (m *member) tenure(ctx context.Context, p *partition, within bool, answered chan<- struct{}) {
	var patience time.Duration
	if !within {
		patience = orphanAfter * m.cfg.Lease
	}
	taken := p.tryLease(ctx, patience)
	m.mu.Lock()
	if within {
		m.trying--
	}
	if taken {
		m.held++
		p.surplus, p.held = false, true
	}
	m.mu.Unlock()
	close(answered)
	if taken {
		m.holding.Add(1)
		p.hold(ctx)
		m.holding.Add(-1)
	}
	m.mu.Lock()
	if taken && !p.surplus {
		m.held--
	}
	p.busy, p.held = false, false
	m.mu.Unlock()
}

// tooMany reports whether a held partition is to be released for others.
func (m *member) tooMany(p *partition) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.surplus || m.held <= m.share {
		return false
	}
	p.surplus = true
	m.held--
	return true
}
