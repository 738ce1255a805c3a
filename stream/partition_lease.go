package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/message"
)

// partition is a partition from the view of a member. The embedded subscription does not read by itself. It provides the
// group, and decodes, acks and dead-letters entries.
type partition struct {
	*subscription
	m                  *member
	void, lease, taken string // keys
	tag                string

	// The member's lock guards these.
	busy    bool // held, or an attempt to take it is running
	held    bool
	surplus bool // held, but to be released for others

	until  atomic.Int64 // the earliest end of the lease, in ns since the member began
	lost   atomic.Bool  // another member has the lease
	since  atomic.Int64 // when the unsettled messages were delivered, or 0 if there are none
	begun  time.Time
	ahead  []*item // read and not settled, in order
	fresh  bool    // nothing was read since the lease was taken
	tenure *message.Tenure
	logged string // the entry that the partition was last said to wait for
}

func newPartition(ctx context.Context, m *member, i int) (*partition, error) {
	sub, err := newSubscription(ctx, m.subs[i], 1)
	if err != nil {
		return nil, err
	}
	sub.member.Consumer = m.name
	return &partition{
		subscription: sub, m: m, tag: m.tags[i], void: m.void[i], lease: m.leases[i], taken: group.TakenKey(sub.cfg.Stream), begun: time.Now(),
	}, nil
}

// tryLease tries to take the lease. If the reply is lost, the lease may be held all the same, and then expires.
func (p *partition) tryLease(ctx context.Context, patience time.Duration) bool {
	ok, err := p.bid(ctx, "take", patience)
	if err != nil {
		p.failed(ctx, "lease", err)
		return false
	}
	p.outage.over("lease")
	return ok
}

func (p *partition) bid(ctx context.Context, what string, patience time.Duration) (bool, error) {
	asked := time.Since(p.begun)
	done, err := leaseScript.Run(ctx, p.client, []string{p.void, p.lease}, what, p.m.name, p.m.cfg.Lease.Milliseconds(), patience.Milliseconds()).Bool()
	if err == nil && done && what != "free" {
		p.until.Store(int64(asked + p.m.cfg.Lease))
	}
	return done, err
}

// mine reports whether no other member can have the lease yet.
func (p *partition) mine() bool { return int64(time.Since(p.begun)) < p.until.Load() }

// hold reads the partition until ctx ends, the lease is lost, or the partition is to be released for others.
func (p *partition) hold(ctx context.Context) {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	p.lost.Store(false)
	p.ahead, p.fresh, p.tenure = nil, true, new(message.Tenure)
	done := make(chan struct{})
	var keeper sync.WaitGroup
	keeper.Go(func() { p.keep(done, stop) })
	p.serve(reading)
	close(done)
	keeper.Wait()
	if p.lost.Load() {
		p.outage.log.Warn("stream: partition lost to another member", "member", p.m.name)
		return
	}
	p.giveBack()
	p.free()
}

// keep extends the lease until done is closed. It calls stop when the partition must not be read any more.
func (p *partition) keep(done <-chan struct{}, stop func()) {
	tick := time.Tick(p.m.interval())
	for {
		select {
		case <-done:
			return
		case <-tick:
		}
		if p.m.tooMany(p) {
			stop()
		}
		if p.hangs() {
			continue
		}
		switch ok, err := p.bid(p.detached, "keep", 0); {
		case err != nil:
			p.outage.begins("lease", err)
		case !ok:
			p.lost.Store(true)
			stop()
			return
		default:
			p.outage.over("lease")
		}
	}
}

// hangs reports whether a handler takes so long that another member should take over.
func (p *partition) hangs() bool {
	since := p.since.Load()
	return p.cfg.NoHeartbeat && since != 0 && time.Since(p.begun)-time.Duration(since) > p.cfg.MaxIdleTime
}

func (p *partition) free() {
	ctx, cancel := context.WithTimeout(p.detached, finishTimeout)
	defer cancel()
	if _, err := p.bid(ctx, "free", 0); err != nil {
		p.outage.log.Warn("stream: lease not released", "lease", p.lease, "error", err)
	}
}
