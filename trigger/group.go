package trigger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/group"
)

const (
	// claimAtOnce is the maximum number of entries of one claim.
	claimAtOnce = 16
	// doubtTime is the maximum time that a request without a reply may still reach the server.
	doubtTime = 15 * time.Minute
	// leaveAfter is the idle time of a removed consumer, as a multiple of that of a claimed entry.
	leaveAfter = 10
)

// grouped is a driver that reads a stream as a consumer of a group. No other process has used the name of the consumer. An entry
// that is pending for it, but neither in held nor in waiting, was in a lost reply.
type grouped struct {
	link
	member group.Member

	mu      sync.Mutex
	held    map[string]bool // delivered entries
	waiting []waiting       // pending for this consumer and not delivered, by id
	beating context.CancelFunc
	beat    sync.WaitGroup

	// Only NextDelivery and Reconnect use the fields below.
	from       string // the position of a group that is created here
	recover    bool   // a reply may have been lost
	doubtUntil time.Time
	claimAt    time.Time
}

// waiting is an entry to be delivered. It has fields only if it was read just now.
type waiting struct {
	id     string
	fields map[string]string
}

func newGrouped(l link) *grouped {
	return &grouped{
		link: l, held: map[string]bool{},
		member: group.Member{Client: l.client, Stream: l.cfg.Stream, Group: l.cfg.Group, Consumer: l.cfg.Function + "-" + uuid()},
	}
}

// uuid returns a random UUID (version 4).
func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Reconnect creates the group and the stream unless they exist.
func (g *grouped) Reconnect(ctx context.Context) error {
	var err error
	if g.from == "" {
		g.from, err = g.start(ctx)
	}
	var made bool
	if err == nil {
		made, err = g.member.Create(ctx, g.from)
	}
	if err != nil {
		g.reload(ctx, err)
		return err
	}
	if made {
		g.log.Info("trigger: group created", "start", g.from)
	}
	g.recover = true
	g.keepBeating(ctx)
	return nil
}

// NextDelivery delivers returned, lost and abandoned entries first, lowest id first, and then new ones.
func (g *grouped) NextDelivery(ctx context.Context, wait time.Duration) (*Delivery, error) {
	for ctx.Err() == nil {
		if err := g.upkeep(ctx); err != nil {
			return nil, g.lost(err)
		}
		if next, ok := g.pop(); ok {
			d, err := g.deliver(ctx, next)
			if err != nil {
				g.push(next)
				return nil, g.lost(err)
			}
			if d != nil {
				return d, nil
			}
			continue // another consumer had it
		}
		found, err := g.readNew(ctx, wait)
		if err != nil {
			return nil, g.lost(err)
		}
		if !found {
			return nil, nil
		}
	}
	return nil, ctx.Err()
}

// lost records that a reply may be lost, or that a request may still reach the server.
func (g *grouped) lost(err error) error {
	g.recover = true
	if !group.IsReply(err) {
		g.doubtUntil = time.Now().Add(doubtTime)
	}
	return err
}

// readNew reads one new entry into the waiting ones.
func (g *grouped) readNew(ctx context.Context, wait time.Duration) (bool, error) {
	ctx, cancel := within(ctx, wait)
	defer cancel()
	cmd := g.member.NewRead(ctx, 1, wait)
	_ = g.client.Process(ctx, cmd) // the command has its error
	entries, err := cmd.Entries()
	if err != nil || len(entries) == 0 {
		return false, err
	}
	entry := entries[0]
	g.push(waiting{entry.ID, textFields(entry.Values)})
	if g.cfg.Ordered && time.Now().Before(g.doubtUntil) {
		g.recover = true // entries that a late request has read come first
	}
	return true, nil
}

// upkeep finds pending entries that were never delivered: those of this consumer, and at intervals those of others.
func (g *grouped) upkeep(ctx context.Context) error {
	if g.recover {
		if err := g.findOwn(ctx); err != nil {
			return err
		}
		g.recover = false
	}
	if !time.Now().Before(g.claimAt) && !g.anyWaiting() {
		more, err := g.claim(ctx)
		if err != nil {
			return err
		}
		if !more {
			g.claimAt = time.Now().Add(g.cfg.ClaimInterval)
			g.dismiss(ctx)
		}
	}
	return nil
}

// findOwn finds entries that are pending for this consumer and not in memory.
func (g *grouped) findOwn(ctx context.Context) error {
	for page, err := range g.member.Pending(ctx, g.member.Consumer) {
		if err != nil {
			return err
		}
		for _, p := range page {
			g.push(waiting{id: p.ID})
		}
	}
	return nil
}

// claim claims entries without a heartbeat for MaxIdleTime, including those of this consumer. It reports whether there may be
// more.
func (g *grouped) claim(ctx context.Context) (more bool, err error) {
	var idle []string
	for page, err := range g.member.Pending(ctx, "") {
		if err != nil {
			return false, err
		}
		for _, p := range page { // Redis 6.0 has no filter for idle entries
			if p.Idle >= g.cfg.MaxIdleTime && !g.holds(p.ID) && len(idle) < claimAtOnce {
				idle = append(idle, p.ID)
			}
		}
		if len(idle) == claimAtOnce {
			break
		}
	}
	if len(idle) == 0 {
		return false, nil
	}
	claimed, err := g.member.Claim(ctx, g.cfg.MaxIdleTime, idle)
	if err != nil {
		return false, err
	}
	for _, id := range claimed {
		g.push(waiting{id: id})
	}
	return len(idle) == claimAtOnce, nil
}

// deliver delivers an entry of this consumer. It returns nil if another consumer owns it, or if it is gone.
func (g *grouped) deliver(ctx context.Context, w waiting) (*Delivery, error) {
	attempt := int64(1)
	if w.fields == nil {
		found, err := g.member.Fetch(ctx, w.id)
		switch {
		case err != nil:
			return nil, err
		case found[0].Deliveries == 0:
			g.log.Debug("trigger: entry belongs to another consumer", "entry", w.id)
			return nil, nil
		case found[0].Values == nil:
			g.log.Error("trigger: entry was trimmed before it was acked", "entry", w.id)
			return nil, nil
		}
		attempt, w.fields = found[0].Deliveries, textFields(found[0].Values)
	}
	id := w.id // Done must not keep the fields in memory
	g.hold(id)
	return &Delivery{
		Stream: g.cfg.Stream, ID: id, Group: g.cfg.Group, Consumer: g.member.Consumer, Fields: w.fields, Attempt: attempt,
		Time: time.Now(), Done: func(settled bool) { g.done(id, settled) },
	}, nil
}

// Ack implements Driver.
func (g *grouped) Ack(ctx context.Context, d *Delivery) error {
	pending, err := g.member.Ack(ctx, d.ID)
	if err == nil && !pending {
		g.log.Info("trigger: acked entry was not pending", "entry", d.ID)
	}
	return err
}

// DeadLetter implements DeadLetterer.
func (g *grouped) DeadLetter(ctx context.Context, d *Delivery, reason string) error {
	what, err := g.member.Bury(ctx, d.ID, group.Grave{
		Key: g.cfg.DeadLetter, Reason: reason, Consumer: g.member.Consumer, First: d.Time, Last: d.Time,
	})
	if err == nil {
		g.log.Error("trigger: entry dead-lettered", "entry", d.ID, "dead_letter", g.cfg.DeadLetter, "what", what)
	}
	return err
}

// push adds an entry to the waiting ones unless it is already in memory.
func (g *grouped) push(w waiting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, found := slices.BinarySearchFunc(g.waiting, w, func(a, b waiting) int { return group.Compare(a.id, b.id) })
	if !found && !g.held[w.id] {
		g.waiting = slices.Insert(g.waiting, at, w)
	}
}

func (g *grouped) pop() (w waiting, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		return w, false
	}
	w = g.waiting[0]
	g.waiting = slices.Delete(g.waiting, 0, 1)
	return w, true
}

func (g *grouped) anyWaiting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting) > 0
}

func (g *grouped) hold(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[id] = true
}

func (g *grouped) done(id string, settled bool) {
	g.mu.Lock()
	delete(g.held, id)
	g.mu.Unlock()
	if !settled {
		g.push(waiting{id: id})
	}
}

func (g *grouped) holds(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held[id]
}

// mine returns all entries of this consumer that are in memory.
func (g *grouped) mine() (ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.held {
		ids = append(ids, id)
	}
	for _, w := range g.waiting {
		ids = append(ids, w.id)
	}
	return ids
}

// Close offers unfinished entries to others, and leaves the group.
func (g *grouped) Close() error {
	g.mu.Lock()
	stop := g.beating
	g.mu.Unlock()
	if stop != nil {
		stop()
		g.beat.Wait()
		g.leave()
	}
	return g.end()
}

var errNoReply = errors.New("a request may still reach the server")

// leave removes the consumer, unless an entry is or may become pending for it.
func (g *grouped) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), replySlack)
	defer cancel()
	err := g.say(ctx, g.cfg.MaxIdleTime)
	if err == nil && time.Now().Before(g.doubtUntil) {
		err = errNoReply
	}
	if err == nil {
		err = g.member.Leave(ctx)
	}
	if err != nil {
		g.log.Warn("trigger: consumer not removed", "consumer", g.member.Consumer, "error", err)
	}
}

// dismiss removes the consumers of dead processes that have no pending entries.
func (g *grouped) dismiss(ctx context.Context) {
	idle := leaveAfter * max(g.cfg.MaxIdleTime, g.cfg.ClaimInterval, g.cfg.BlockTimeout)
	gone, err := g.member.Dismiss(ctx, idle)
	if gone > 0 {
		g.log.Info("trigger: dead consumers removed", "consumers", gone)
	}
	if err != nil && ctx.Err() == nil {
		g.log.Warn("trigger: dead consumers not removed", "error", err)
	}
}

// keepBeating prevents other consumers from claiming this consumer's entries, until Close.
func (g *grouped) keepBeating(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.beating != nil {
		return
	}
	ctx, g.beating = context.WithCancel(context.WithoutCancel(ctx))
	g.beat.Go(func() {
		tick := time.Tick(g.cfg.MaxIdleTime / 3)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
			if err := g.say(ctx, 0); err != nil && ctx.Err() == nil {
				g.log.Warn("trigger: heartbeat failed", "error", err)
			}
		}
	})
}

// say sets the idle time of this consumer's entries.
func (g *grouped) say(ctx context.Context, idle time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, replySlack)
	defer cancel()
	if err := g.member.Hold(ctx, g.mine(), idle, false); err != nil && !group.IsGone(err) {
		return err
	}
	return nil
}
