// Package nemesis breaks what a run works on, as a seed says.
package nemesis

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/torture/internal/crew"
	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/pulse"
	"github.com/luatx/luatx/torture/internal/site"
)

// recoverWithin is how long a fault that was lifted may keep its branches from committing.
const recoverWithin = 30 * time.Second

// lagBefore is how far behind its master a replica may be on a busy machine, before anything is done to it.
const lagBefore = 2 * time.Second

// Config says what is broken, and what is watched meanwhile.
type Config struct {
	Site       *site.Site
	Crew       *crew.Crew
	Pulse      *pulse.Pulse
	Branches   []ground.Branch
	Seed       uint64
	Only       []string              // the kinds of faults, by the beginnings of their names; none: all that fit
	Client     redis.UniversalClient // past the proxies, as is the Transactor
	Transactor *luatx.Transactor
	Log        io.Writer // gets a line for each fault
}

// Fault is one that was inflicted.
type Fault struct {
	Kind     string
	Target   string
	From     time.Time
	To       time.Time     // when it was lifted
	Recovery time.Duration // from then to the next commit of what it had concerned; negative: there was none
	Err      string        // why it was not done, or not as meant
}

// Outage is a failure after which commits may be gone that were acknowledged, for replication is asynchronous.
type Outage struct {
	Branches []int
	From, To time.Time
}

// Meets reports whether a branch may have lost commits that were acknowledged between two times, in nanoseconds.
func (o Outage) Meets(branch int, from, to int64) bool {
	return slices.Contains(o.Branches, branch) && to >= o.From.Add(-lagBefore).UnixNano() && from <= o.To.UnixNano()
}

// Toll is what the nemeses have done.
type Toll struct {
	Faults  []Fault
	Outages []Outage
	Stale   Stale
	Taken   map[string]bool // events that were taken from their index: with it went the time for which they were scheduled
}

// Nemeses is all that goes wrong in a run. Its toll is complete when Run has returned.
type Nemeses struct {
	Config
	Toll
	store  *outbox.Store
	behind sync.WaitGroup // what is still being lifted
	mu     sync.Mutex     // of the toll
}

// Stale is what was tried under leases that had run out and been given to others.
type Stale struct {
	Tried   int
	Changed []string // what had an effect all the same
}

// New returns the nemeses of a run.
func New(cfg Config) *Nemeses {
	return &Nemeses{Config: cfg, store: outbox.NewStore(cfg.Transactor), Toll: Toll{Taken: map[string]bool{}}}
}

// injury is what a fault has done.
type injury struct {
	target   string
	branches []int // that it concerned; nil: all
}

// kind is a kind of fault. Those of one track come one after the other; tracks run side by side.
type kind struct {
	name  string
	track string
	fits  func(n *Nemeses) bool
	// inflict breaks something, and returns when that is lifted again.
	inflict func(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error)
}

// Repeating is the kind that repeats requests without their senders' knowing.
const Repeating = "duplicate-requests"

// Kinds are the names of all kinds.
func Kinds() (names []string) {
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

func kinds() []kind {
	return slices.Concat(processKinds, networkKinds, serverKinds, clusterKinds, outboxKinds)
}

// fits says whether the run has a kind of fault, and wants it.
func (n *Nemeses) fits(k kind) bool {
	wanted := func(begin string) bool { return strings.HasPrefix(k.name, begin) }
	return (k.fits == nil || k.fits(n)) && (len(n.Only) == 0 || slices.ContainsFunc(n.Only, wanted))
}

// Run breaks things until ctx ends, and returns when all is lifted.
func (n *Nemeses) Run(ctx context.Context) {
	tracks := make(map[string][]kind)
	fmt.Fprint(n.Log, "faults:")
	for _, k := range kinds() {
		if n.fits(k) {
			tracks[k.track] = append(tracks[k.track], k)
			fmt.Fprint(n.Log, " ", k.name)
		}
	}
	fmt.Fprintln(n.Log)
	var running sync.WaitGroup
	for name, chosen := range tracks {
		running.Go(func() { n.track(ctx, name, chosen) })
	}
	running.Wait()
	n.behind.Wait()
}

// pauses between two faults of a track.
const shortestPause, longestPause = 200 * time.Millisecond, 1500 * time.Millisecond

// schedule draws the faults of a track: the same seed, track and kinds make the same ones.
type schedule struct {
	rng   *rand.Rand
	kinds []kind
	bag   []kind // what is left before every kind has its turn again
}

func newSchedule(seed uint64, track string, chosen []kind) *schedule {
	h := fnv.New64a()
	_, _ = h.Write([]byte(track)) // never fails
	return &schedule{rng: rand.New(rand.NewPCG(seed, h.Sum64())), kinds: chosen}
}

// next is the next fault: how long to wait for it, and what it draws from, however many draws it takes.
func (s *schedule) next() (pause time.Duration, k kind, rng *rand.Rand) {
	if len(s.bag) == 0 {
		s.bag = slices.Clone(s.kinds)
		s.rng.Shuffle(len(s.bag), func(i, j int) { s.bag[i], s.bag[j] = s.bag[j], s.bag[i] })
	}
	k, s.bag = s.bag[0], s.bag[1:]
	return between(s.rng, shortestPause, longestPause), k, rand.New(rand.NewPCG(s.rng.Uint64(), s.rng.Uint64()))
}

// track inflicts what the schedule says until ctx ends.
func (n *Nemeses) track(ctx context.Context, name string, chosen []kind) {
	s := newSchedule(n.Seed, name, chosen)
	for {
		pause, k, rng := s.next()
		if !sleep.For(ctx, pause) {
			return
		}
		n.inflict(ctx, k, rng)
	}
}

func (n *Nemeses) inflict(ctx context.Context, k kind, rng *rand.Rand) {
	f := Fault{Kind: k.name, From: time.Now()}
	done, err := k.inflict(ctx, n, rng)
	f.Target, f.To = done.target, time.Now()
	if err != nil {
		f.Err = err.Error()
	}
	if ctx.Err() == nil && err == nil {
		f.Recovery = n.recovery(ctx, done.branches, f.To)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintf(n.Log, "%s %s %s, for %v, commits again after %v %s\n",
		f.From.Format("15:04:05.000"), f.Kind, f.Target, f.To.Sub(f.From).Round(time.Millisecond), f.Recovery.Round(time.Millisecond), f.Err)
	n.Faults = append(n.Faults, f)
}

// recovery is how long it takes until something of the branches commits again; negative: too long.
func (n *Nemeses) recovery(ctx context.Context, branches []int, lifted time.Time) time.Duration {
	if branches == nil {
		for _, b := range n.Branches {
			branches = append(branches, b.N)
		}
	}
	timer := time.NewTimer(recoverWithin)
	defer timer.Stop()
	select {
	case at := <-n.Pulse.Next(branches, lifted):
		return max(0, time.Unix(0, at).Sub(lifted))
	case <-ctx.Done():
		return 0 // it is not asked for at the end
	case <-timer.C:
		return -1
	}
}

// lost declares an outage.
func (n *Nemeses) lost(o Outage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Outages = append(n.Outages, o)
}

// between draws a duration.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// insist retries for as long as a sick server takes to recover, because every injury must be
// healed.
func insist(do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), recoverWithin)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil || !sleep.For(ctx, 50*time.Millisecond) {
			return err
		}
	}
}
