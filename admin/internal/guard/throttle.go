package guard

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// loginBurst is how many logins of an address may fail at once. After that, one more may fail per loginInterval.
	loginBurst, loginInterval = 10, 6 * time.Second
	// allBurst and allInterval are the same limits for all addresses together.
	allBurst, allInterval = 100, 100 * time.Millisecond
)

// throttle limits failed logins, for each address and in total. Its memory is constant, because addresses share cells by a
// seeded hash. Recently accepted credentials pass, so that guesses of others lock nobody out.
type throttle struct {
	seed maphash.Seed

	mu       sync.Mutex
	all      cell
	each     [4096]cell
	accepted [256][sha256.Size]byte
}

// cell holds the time at which all failures so far no longer count.
type cell struct{ until time.Time }

func newThrottle() *throttle { return &throttle{seed: maphash.MakeSeed()} }

// wait returns how long the next attempt has to wait.
func (c *cell) wait(now time.Time, burst int, interval time.Duration) time.Duration {
	if c.until.Before(now) {
		return 0
	}
	return max(0, c.until.Sub(now)-time.Duration(burst-1)*interval)
}

func (c *cell) add(now time.Time, interval time.Duration) {
	if c.until.Before(now) {
		c.until = now
	}
	c.until = c.until.Add(interval)
}

// attempt counts a request with credentials as a failed login until accepted is called. It returns a problem with status
// 429 if too many have failed.
func (t *throttle) attempt(r *http.Request) (accepted func(), err error) {
	credentials := r.Header.Get("Authorization")
	if credentials == "" {
		return func() {}, nil
	}
	sum := sha256.Sum256([]byte(credentials))
	slot := &t.accepted[int(binary.BigEndian.Uint16(sum[:]))%len(t.accepted)]
	cell := &t.each[maphash.String(t.seed, network(r.RemoteAddr))%uint64(len(t.each))]
	now := time.Now()

	t.mu.Lock()
	defer t.mu.Unlock()
	if *slot == sum {
		return func() {}, nil
	}
	if wait := max(cell.wait(now, loginBurst, loginInterval), t.all.wait(now, allBurst, allInterval)); wait > 0 {
		return nil, &Problem{Status: http.StatusTooManyRequests, Detail: "too many logins failed; retry later", RetryAfter: wait}
	}
	cell.add(now, loginInterval)
	t.all.add(now, allInterval)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		cell.until = cell.until.Add(-loginInterval)
		t.all.until = t.all.until.Add(-allInterval)
		*slot = sum
	}, nil
}

// network returns the address of a client. For IPv6 it returns the /64, because one client has all of its addresses.
func network(remote string) string {
	addr, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip := addr.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if prefix, err := ip.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return ip.String()
}
