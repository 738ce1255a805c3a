// Package nemesis inflicts faults on a run. A seed determines the faults.
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

// recoverWithin is how long after the end of a fault its branches may fail to commit.
const recoverWithin = 30 * time.Second

// lagBefore is how far a replica may lag behind its master on a busy machine without a fault.
const lagBefore = 2 * time.Second

// Config configures Nemeses.
type Config struct {
	Site       *site.Site
	Crew       *crew.Crew
	Pulse      *pulse.Pulse
	Branches   []ground.Branch
	Seed       uint64
	Only       []string              // prefixes of the names of the faults to inflict; empty for all that fit
	Client     redis.UniversalClient // bypasses the proxies, as Transactor does
	Transactor *luatx.Transactor
	Log        io.Writer // gets a line for each fault
}

// Fault is a fault that was inflicted.
type Fault struct {
	Kind     string
	Target   string
	From     time.Time
	To       time.Time     // when it ended
	Recovery time.Duration // time until the next commit of the affected branches; negative if there was none
	Err      string        // why it failed or had no full effect
}

// Outage is a failure that may lose acknowledged commits, because replication is asynchronous.
type Outage struct {
	Branches []int
	From, To time.Time
}

// Meets reports whether a branch may have lost commits that were acknowledged between two times, in nanoseconds.
func (o Outage) Meets(branch int, from, to int64) bool {
	return slices.Contains(o.Branches, branch) && to >= o.From.Add(-lagBefore).UnixNano() && from <= o.To.UnixNano()
}

// Toll is the effect of the nemeses.
type Toll struct {
	Faults  []Fault
	Outages []Outage
	Stale   Stale
	Taken   map[string]bool // events removed from their index, which also lost their scheduled time
}

// Nemeses inflict the faults of a run. The toll is complete when Run has returned.
type Nemeses struct {
	Config
	Toll
	store  *outbox.Store
	behind sync.WaitGroup // faults that are still being lifted
	mu     sync.Mutex     // guards the toll
}

// Stale counts settlements under leases that had expired and been given to others.
type Stale struct {
	Tried   int
	Changed []string // settlements that had an effect nevertheless
}

// New returns the nemeses of a run.
func New(cfg Config) *Nemeses {
	return &Nemeses{Config: cfg, store: outbox.NewStore(cfg.Transactor), Toll: Toll{Taken: map[string]bool{}}}
}

// injury is the effect of a fault.
type injury struct {
	target   string
	branches []int // affected branches; nil for all
}

// kind is a kind of fault. The faults of one track run one after another, and tracks run concurrently.
type kind struct {
	name  string
	track string
	fits  func(n *Nemeses) bool
	// inflict breaks something, and returns when it has repaired it.
	inflict func(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error)
}

// Repeating is the kind that repeats requests without their senders' knowledge.
const Repeating = "duplicate-requests"

// Kinds returns the names of all kinds.
func Kinds() (names []string) {
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

func kinds() []kind {
	return slices.Concat(processKinds, networkKinds, serverKinds, clusterKinds, outboxKinds)
}

// fits reports whether the run supports a kind of fault and its configuration includes it.
func (n *Nemeses) fits(k kind) bool {
	wanted := func(begin string) bool { return strings.HasPrefix(k.name, begin) }
	return (k.fits == nil || k.fits(n)) && (len(n.Only) == 0 || slices.ContainsFunc(n.Only, wanted))
}

// Run inflicts faults until ctx ends, and returns when all faults are lifted.
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

// Bounds of the pause between two faults of a track.
const shortestPause, longestPause = 200 * time.Millisecond, 1500 * time.Millisecond

// schedule chooses the faults of a track. The same seed, track and kinds result in the same faults.
type schedule struct {
	rng   *rand.Rand
	kinds []kind
	bag   []kind // kinds left before every kind can be chosen again
}

func newSchedule(seed uint64, track string, chosen []kind) *schedule {
	h := fnv.New64a()
	_, _ = h.Write([]byte(track)) // never fails
	return &schedule{rng: rand.New(rand.NewPCG(seed, h.Sum64())), kinds: chosen}
}

// next returns the next fault: the pause before it, its kind, and its own source of random numbers, so that the number of
// draws does not affect later faults.
func (s *schedule) next() (pause time.Duration, k kind, rng *rand.Rand) {
	if len(s.bag) == 0 {
		s.bag = slices.Clone(s.kinds)
		s.rng.Shuffle(len(s.bag), func(i, j int) { s.bag[i], s.bag[j] = s.bag[j], s.bag[i] })
	}
	k, s.bag = s.bag[0], s.bag[1:]
	return between(s.rng, shortestPause, longestPause), k, rand.New(rand.NewPCG(s.rng.Uint64(), s.rng.Uint64()))
}

// track inflicts the faults of the schedule until ctx ends.
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
	fmt.Fprintf(n.Log, "%s %s %s for %v, first commit after %v %s\n",
		f.From.Format("15:04:05.000"), f.Kind, f.Target, f.To.Sub(f.From).Round(time.Millisecond), f.Recovery.Round(time.Millisecond), f.Err)
	n.Faults = append(n.Faults, f)
}

// recovery returns the time until one of the branches commits again, or a negative time if that takes too long.
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
		return 0 // recovery does not matter at the end
	case <-timer.C:
		return -1
	}
}

// lost records an outage.
func (n *Nemeses) lost(o Outage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Outages = append(n.Outages, o)
}

// between returns a random duration.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// insist retries until a failed server may have recovered, because faults must be lifted.
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
