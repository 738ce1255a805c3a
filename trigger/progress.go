package trigger

import (
	"sync"
	"time"
)

// progress tracks unfinished deliveries, and whether any of them succeeds.
type progress struct {
	timeout time.Duration

	mu   sync.Mutex
	open map[*unfinished]struct{}
	due  int // of open, without the deferred ones
	// since is the time of the latest success, or of the first delivery after an idle time.
	since time.Time
	// failed is the time of the latest failure after since.
	failed time.Time
}

// unfinished is a delivery that was neither settled nor returned to its driver.
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

// fail records a failure of a delivery whose retry is due after the delay. If its function has deferred a delivery for longer
// than the timeout, it cannot make progress before, so it does not count until then.
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

// leave removes a delivery. The caller holds the lock.
func (p *progress) leave(u *unfinished) {
	if _, open := p.open[u]; open && !u.deferred {
		p.due--
	}
}

// stalled reports whether deliveries were in progress for the timeout, or failed within it, and none succeeded.
func (p *progress) stalled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	return now.Sub(p.since) > p.timeout && (p.due > 0 || !p.failed.Before(p.since) && now.Sub(p.failed) <= p.timeout)
}

// oldest returns the age of the oldest delivery, or 0 if there is none.
func (p *progress) oldest() (age time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for u := range p.open {
		age = max(age, now.Sub(u.added))
	}
	return age
}
