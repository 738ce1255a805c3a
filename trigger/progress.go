package trigger

import (
	"sync"
	"time"
)

// progress knows the deliveries that are not finished, and whether any of them succeed.
type progress struct {
	timeout time.Duration

	mu   sync.Mutex
	open map[*unfinished]struct{}
	due  int // of open, without those that are deferred
	// since is the time of the latest success, or of the first delivery after a quiet time.
	since time.Time
	// failed is the time of the latest failure after since.
	failed time.Time
}

// unfinished is a delivery that was neither settled nor given back to its driver.
type unfinished struct {
	added    time.Time
	deferred bool
}

func newProgress(timeout time.Duration) *progress {
	return &progress{timeout: timeout, open: map[*unfinished]struct{}{}}
}

// begin adds a delivery.
func (p *progress) begin(d *Delivery) *unfinished {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.due == 0 && now.Sub(p.failed) > p.timeout {
		p.since = now
	}
	u := &unfinished{added: d.added()}
	p.open[u] = struct{}{}
	p.due++
	return u
}

// fail notes a failure of a delivery that is due again after the delay. A delivery that its function has deferred for longer than
// the timeout cannot make progress before, so it does not count until then.
func (p *progress) fail(u *unfinished, delay time.Duration, asked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if asked && delay > p.timeout {
		p.leave(u)
		u.deferred = true
		return
	}
	p.failed = time.Now()
}

// end removes a delivery.
func (p *progress) end(u *unfinished, succeeded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(u)
	delete(p.open, u)
	if succeeded {
		p.since, p.failed = time.Now(), time.Time{}
	}
}

// leave must be called with the lock held.
func (p *progress) leave(u *unfinished) {
	if _, open := p.open[u]; open && !u.deferred {
		p.due--
	}
}

// stalled reports whether deliveries were worked on for the timeout, or failed within it, and none succeeded.
func (p *progress) stalled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	return now.Sub(p.since) > p.timeout && (p.due > 0 || !p.failed.Before(p.since) && now.Sub(p.failed) <= p.timeout)
}

// oldest returns the age of the oldest delivery; 0 if there is none.
func (p *progress) oldest() (age time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for u := range p.open {
		age = max(age, now.Sub(u.added))
	}
	return age
}
