package trigger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pendingPage is how many pending entries are looked at in one command.
	pendingPage = 100
	// claimAtOnce is how many entries of others are taken over at once.
	claimAtOnce = 16
	// doubtTime is how long a request may be on its way whose reply never came.
	doubtTime = 15 * time.Minute
	// leaveAfter is how many times as long as an entry a consumer may be idle.
	leaveAfter = 10
)

// group reads a stream as a consumer of a group. Its name is new every time, so what is pending for it and not known here
// was lost on the way.
type group struct {
	link
	consumer string

	mu      sync.Mutex
	held    map[string]bool // entries given out
	waiting []waiting       // pending for this consumer and to be given out, by id
	beating context.CancelFunc
	beat    sync.WaitGroup

	// What follows belongs to NextDelivery and Reconnect.
	start      string // of a group that is made here
	recover    bool   // a reply may have been lost
	doubtUntil time.Time
	claimAt    time.Time
}

// waiting is an entry to be given out; one that was read just now has its fields.
type waiting struct {
	id     string
	fields map[string]string
}

func newGroup(l link) *group {
	return &group{link: l, consumer: l.cfg.Function + "-" + uuid(), held: map[string]bool{}}
}

// uuid returns a random UUID (version 4).
func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Reconnect makes the group where it does not exist, and the stream with it.
func (g *group) Reconnect(ctx context.Context) error {
	var err error
	if g.start == "" {
		g.start, err = g.startID(ctx)
	}
	if err == nil {
		err = g.client.XGroupCreateMkStream(ctx, g.cfg.Stream, g.cfg.Group, g.start).Err()
	}
	switch {
	case hasPrefix(err, "BUSYGROUP"):
	case err != nil:
		g.reload(ctx, err)
		return err
	default:
		g.log.Info("trigger: group made", "start", g.start)
	}
	g.recover = true
	g.keepBeating(ctx)
	return nil
}

// NextDelivery gives out what was given back, lost or left behind, lowest id first, and then what is new.
func (g *group) NextDelivery(ctx context.Context, wait time.Duration) (*Delivery, error) {
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
			continue // it was somebody else's
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

// lost notes that a reply may have been lost, or a request be still on its way.
func (g *group) lost(err error) error {
	g.recover = true
	if !isReply(err) {
		g.doubtUntil = time.Now().Add(doubtTime)
	}
	return err
}

// readNew reads one new entry into those that wait.
func (g *group) readNew(ctx context.Context, wait time.Duration) (bool, error) {
	ctx, cancel := within(ctx, wait)
	defer cancel()
	// A pipeline that is never executed builds the command, read timeout and all.
	cmd := g.client.Pipeline().XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: g.cfg.Group, Consumer: g.consumer, Streams: []string{g.cfg.Stream, ">"}, Count: 1, Block: wait,
	})
	_ = g.client.Process(ctx, readOnce{cmd}) // the command holds its error
	entry, ok, err := readOne(cmd)
	if err != nil || !ok {
		return false, err
	}
	g.push(waiting{entry.ID, textFields(entry.Values)})
	if g.cfg.Ordered && time.Now().Before(g.doubtUntil) {
		g.recover = true // what a late request has read goes before it
	}
	return true, nil
}

// upkeep finds what is pending and was never given out: here, and in its turn at others.
func (g *group) upkeep(ctx context.Context) error {
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

// findOwn finds entries that are pending for this consumer and unknown here.
func (g *group) findOwn(ctx context.Context) error {
	return g.pending(ctx, g.consumer, func(page []redis.XPendingExt) (bool, error) {
		for _, p := range page {
			g.push(waiting{id: p.ID})
		}
		return true, nil
	})
}

// claim takes over entries of which nothing was heard for MaxIdleTime, this consumer's own included. It reports whether
// there may be more.
func (g *group) claim(ctx context.Context) (more bool, err error) {
	var idle []string
	err = g.pending(ctx, "", func(page []redis.XPendingExt) (bool, error) {
		for _, p := range page { // Redis 6.0 cannot be asked for idle ones alone
			if p.Idle >= g.cfg.MaxIdleTime && !g.known(p.ID) && len(idle) < claimAtOnce {
				idle = append(idle, p.ID)
			}
		}
		return len(idle) < claimAtOnce, nil
	})
	if err != nil || len(idle) == 0 {
		return false, err
	}
	// Ids alone are asked for: that counts no delivery, and Redis 6 answers a nil for an entry that is gone.
	cmd := g.client.Pipeline().XClaimJustID(ctx, &redis.XClaimArgs{
		Stream: g.cfg.Stream, Group: g.cfg.Group, Consumer: g.consumer, MinIdle: g.cfg.MaxIdleTime, Messages: idle,
	})
	if err := g.client.Process(ctx, claimOnce{cmd}); err != nil {
		return false, err
	}
	for _, id := range cmd.Val() {
		g.push(waiting{id: id})
	}
	return len(idle) == claimAtOnce, nil
}

// pending shows the pending entries of a consumer, of all where it is empty, page by page, as long as more is true. It asks
// inside a transaction: outside of one the client may ask a replica, which may not know yet.
func (g *group) pending(ctx context.Context, consumer string, show func([]redis.XPendingExt) (more bool, err error)) error {
	for from := "-"; ; {
		var cmd *redis.XPendingExtCmd
		_, err := g.client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			cmd = pipe.XPendingExt(ctx, &redis.XPendingExtArgs{
				Stream: g.cfg.Stream, Group: g.cfg.Group, Start: from, End: "+", Count: pendingPage, Consumer: consumer,
			})
			return nil
		})
		if err != nil {
			return err
		}
		page := cmd.Val()
		if more, err := show(page); err != nil || !more || len(page) < pendingPage {
			return err
		}
		from = behind(page[len(page)-1].ID)
	}
}

// deliver gives out an entry that is still this consumer's; nil where it is not, or is gone.
func (g *group) deliver(ctx context.Context, w waiting) (*Delivery, error) {
	attempt := int64(1)
	if w.fields == nil {
		reply, err := redeliverScript.Run(ctx, g.client, []string{g.cfg.Stream}, g.cfg.Group, g.consumer, w.id).Slice()
		if err != nil {
			return nil, err
		}
		if len(reply) == 0 {
			g.log.Debug("trigger: entry is another consumer's", "entry", w.id)
			return nil, nil
		}
		attempt, _ = reply[0].(int64)
		if len(reply) < 2 {
			g.log.Error("trigger: entry was trimmed before it was acked", "entry", w.id)
			return nil, nil
		}
		w.fields = fieldList(reply[1])
	}
	id := w.id // Done must not keep the fields in memory
	g.hold(id)
	return &Delivery{
		Stream: g.cfg.Stream, ID: id, Group: g.cfg.Group, Consumer: g.consumer, Fields: w.fields, Attempt: attempt,
		Time: time.Now(), Done: func(settled bool) { g.done(id, settled) },
	}, nil
}

// fieldList makes fields of names and values in turn.
func fieldList(reply any) map[string]string {
	list, _ := reply.([]any)
	fields := make(map[string]string, len(list)/2)
	for pair := range slices.Chunk(list, 2) {
		if len(pair) == 2 {
			fields[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
		}
	}
	return fields
}

// Ack implements Driver.
func (g *group) Ack(ctx context.Context, d *Delivery) error {
	n, err := g.client.XAck(ctx, g.cfg.Stream, g.cfg.Group, d.ID).Result()
	if err == nil && n == 0 {
		g.log.Info("trigger: acked entry was pending for nobody: it was acked before, or claimed by another", "entry", d.ID)
	}
	return err
}

// DeadLetter implements DeadLetterer.
func (g *group) DeadLetter(ctx context.Context, d *Delivery, reason string) error {
	what, err := deadLetterScript.Run(ctx, g.client, []string{g.cfg.Stream, g.cfg.DeadLetter}, g.cfg.Group, g.consumer, d.ID,
		bounded(reason), time.Since(d.Time).Milliseconds()).Text()
	if isNoGroup(err) {
		return nil // made anew, the group delivers it again
	}
	if err == nil {
		g.log.Error("trigger: entry given up", "entry", d.ID, "dead_letter", g.cfg.DeadLetter, "what", what)
	}
	return err
}

// push makes an entry wait, unless it is known.
func (g *group) push(w waiting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, found := slices.BinarySearchFunc(g.waiting, w, func(a, b waiting) int { return compareIDs(a.id, b.id) })
	if !found && !g.held[w.id] {
		g.waiting = slices.Insert(g.waiting, at, w)
	}
}

func (g *group) pop() (w waiting, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		return w, false
	}
	w = g.waiting[0]
	g.waiting = slices.Delete(g.waiting, 0, 1)
	return w, true
}

func (g *group) anyWaiting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting) > 0
}

func (g *group) hold(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[id] = true
}

func (g *group) done(id string, settled bool) {
	g.mu.Lock()
	delete(g.held, id)
	g.mu.Unlock()
	if !settled {
		g.push(waiting{id: id})
	}
}

func (g *group) known(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held[id] || slices.ContainsFunc(g.waiting, func(w waiting) bool { return w.id == id })
}

// mine returns all entries that are known to be this consumer's.
func (g *group) mine() (ids []string) {
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

// Close offers what is left to others, and leaves the group.
func (g *group) Close() error {
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

var errNoReply = errors.New("a request may still be on its way")

// leave removes the consumer, unless something is pending for it, or may yet become so.
func (g *group) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), replySlack)
	defer cancel()
	err := g.say(ctx, g.cfg.MaxIdleTime)
	if err == nil && time.Now().Before(g.doubtUntil) {
		err = errNoReply
	}
	if err == nil {
		err = leaveScript.Run(ctx, g.client, []string{g.cfg.Stream}, g.cfg.Group, g.consumer, -1).Err()
	}
	if err != nil && !isNoGroup(err) {
		g.log.Warn("trigger: consumer stays in the group", "consumer", g.consumer, "error", err)
	}
}

// dismiss removes the consumers of processes that are gone, once nothing is pending for them.
func (g *group) dismiss(ctx context.Context) {
	idle := leaveAfter * max(g.cfg.MaxIdleTime, g.cfg.ClaimInterval, g.cfg.BlockTimeout)
	gone, err := leaveScript.Run(ctx, g.client, []string{g.cfg.Stream}, g.cfg.Group, g.consumer, idle.Milliseconds()).Int64()
	if gone > 0 {
		g.log.Info("trigger: consumers that were gone are removed", "consumers", gone)
	}
	if err != nil && ctx.Err() == nil {
		g.log.Warn("trigger: consumers that are gone stay in the group", "error", err)
	}
}
