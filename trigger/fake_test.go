package trigger

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/sleep"
)

var errFake = errors.New("the server is sick")

// fakeDriver is a stream of entries in memory. Functions that are set decide its failures.
type fakeDriver struct {
	t                        testing.TB
	next, ack, connect, dead func() error
	// again reports whether an entry is delivered although it is in flight.
	again func() bool

	receiving atomic.Int32 // concurrent calls of NextDelivery and Reconnect
	closed    atomic.Int32

	mu       sync.Mutex
	entries  []*fakeEntry
	asked    []time.Time // calls of NextDelivery
	connects []time.Time
}

type fakeEntry struct {
	id       string
	fields   map[string]string
	attempts int64
	held     int
	acked    bool
	dead     string
}

func newFake(t testing.TB, entries int) *fakeDriver {
	t.Helper()
	f := &fakeDriver{t: t}
	for range entries {
		f.add(map[string]string{"data": "x"})
	}
	return f
}

func (f *fakeDriver) add(fields map[string]string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := strconv.Itoa(len(f.entries)+1) + "-0"
	f.entries = append(f.entries, &fakeEntry{id: id, fields: fields})
	return id
}

// ask calls a function that may change meanwhile.
func (f *fakeDriver) ask(what *func() error) error {
	f.mu.Lock()
	call := *what
	f.mu.Unlock()
	if call == nil {
		return nil
	}
	return call()
}

// set changes a failure.
func (f *fakeDriver) set(next, connect, ack func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next, f.connect, f.ack = next, connect, ack
}

// connected reports whether Reconnect was called, and resets that.
func (f *fakeDriver) connected() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	times := f.connects
	f.connects = nil
	return times
}

// alone fails the test if calls for receiving and connecting overlap.
func (f *fakeDriver) alone() func() {
	if f.receiving.Add(1) != 1 {
		f.t.Error("the driver is called twice at once")
	}
	if f.closed.Load() > 0 {
		f.t.Error("the driver is called after Close")
	}
	return func() { f.receiving.Add(-1) }
}

func (f *fakeDriver) NextDelivery(ctx context.Context, wait time.Duration) (*Delivery, error) {
	defer f.alone()()
	f.note(&f.asked)
	if err := f.ask(&f.next); err != nil {
		return nil, err
	}
	if d := f.choose(); d != nil {
		return d, nil
	}
	sleep.For(ctx, min(wait, 100*time.Millisecond))
	return nil, ctx.Err()
}

func (f *fakeDriver) note(list *[]time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*list = append(*list, time.Now())
}

func (f *fakeDriver) choose() *Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.entries {
		if e.acked || e.dead != "" || e.held > 0 && (e.held > 1 || f.again == nil || !f.again()) {
			continue
		}
		e.held++
		e.attempts++
		return &Delivery{
			Stream: "s", Group: "g", Consumer: "c", ID: e.id, Fields: e.fields, Attempt: e.attempts, Time: time.Now(),
			Done: func(bool) {
				f.mu.Lock()
				defer f.mu.Unlock()
				if e.held--; e.held < 0 {
					f.t.Errorf("entry %s was let go twice", e.id)
				}
			},
		}
	}
	return nil
}

// find returns an entry. The caller holds the lock.
func (f *fakeDriver) find(id string) *fakeEntry {
	i := slices.IndexFunc(f.entries, func(e *fakeEntry) bool { return e.id == id })
	return f.entries[i]
}

// look returns the current state of an entry.
func (f *fakeDriver) look(id string) fakeEntry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.find(id)
}

// count returns the number of calls for a delivery.
func (f *fakeDriver) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

func (f *fakeDriver) Ack(ctx context.Context, d *Delivery) error {
	if err := errors.Join(ctx.Err(), f.ask(&f.ack)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.find(d.ID).acked = true
	return nil
}

func (f *fakeDriver) DeadLetter(ctx context.Context, d *Delivery, reason string) error {
	if err := errors.Join(ctx.Err(), f.ask(&f.dead)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.find(d.ID).dead = reason
	return nil
}

func (f *fakeDriver) Reconnect(ctx context.Context) error {
	defer f.alone()()
	f.note(&f.connects)
	return errors.Join(ctx.Err(), f.ask(&f.connect))
}

func (f *fakeDriver) Close() error {
	if f.closed.Add(1) != 1 {
		f.t.Error("the driver is closed twice")
	}
	return nil
}

// settled returns the number of acked entries and of dead letters.
func (f *fakeDriver) settled() (acked, dead int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.entries {
		if e.acked {
			acked++
		}
		if e.dead != "" {
			dead++
		}
	}
	return acked, dead
}

// held returns the number of deliveries without a call of Done.
func (f *fakeDriver) held() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.entries {
		n += e.held
	}
	return n
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// times fails the first n calls.
func times(n int) func() error {
	var calls atomic.Int32
	return func() error {
		if int(calls.Add(1)) <= n {
			return errFake
		}
		return nil
	}
}

// sometimes fails with a probability until it is switched off.
func sometimes(rng *rand.Rand, off *atomic.Bool, p float64) func() error {
	return func() error {
		if !off.Load() && rng.Float64() < p {
			return errFake
		}
		return nil
	}
}

// lockedSource is a source of random numbers for several goroutines.
type lockedSource struct {
	mu sync.Mutex
	rand.PCG
}

func newRand(seed uint64) *rand.Rand {
	s := &lockedSource{}
	s.Seed(seed, seed)
	return rand.New(s)
}

func (s *lockedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.PCG.Uint64()
}
