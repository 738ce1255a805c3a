package sqltx

import (
	"context"
	"sync"
	"time"

	"github.com/luatx/luatx/message"
)

// pump runs one Source. One loop claims rows and hands them out; a second goroutine writes how they were settled.
type pump struct {
	*OutboxPublisher
	owner  string
	out    chan *message.RawMessage
	signal chan struct{} // holds a token if something has happened
	writer chan struct{} // holds a token for the writer

	mu      sync.Mutex
	woken   bool
	settled []settlement // not processed by the loop yet
	unsaved []settlement // not written yet
	saved   []*held      // written, not processed by the loop yet
	ended   bool         // the writer has stopped, so settle writes itself

	// Used by the loop only.
	ready  []*held          // may be handed out
	lanes  map[string]*lane // by ordering key
	holds  map[*held]bool   // all claimed rows that are not written
	claims int

	// Where the search for the first events of ordering keys is. Used by the loop only.
	after   string // the last key that was examined; empty at the beginning
	again   bool   // keys up to it may have become due since
	examine int    // number of keys to examine; 0: as many as there is room for
}

// lane holds the events of an ordering key that this process has claimed.
type lane struct {
	head  *held   // ready or handed out
	later []*held // behind the head
}

// held is a row that this process has claimed.
type held struct {
	row
	lease   string
	counted bool      // the claim counted an attempt
	until   time.Time // from then on, another claimer may have it
	out     bool      // it was handed out
	msg     *message.RawMessage
}

func newPump(p *OutboxPublisher) *pump {
	return &pump{
		OutboxPublisher: p, owner: message.NewID(), out: make(chan *message.RawMessage, p.cfg.BatchSize),
		signal: make(chan struct{}, 1), writer: make(chan struct{}, 1),
		lanes: map[string]*lane{}, holds: map[*held]bool{},
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *pump) wake() {
	s.mu.Lock()
	s.woken = true
	s.mu.Unlock()
	notify(s.signal)
}

// run hands out rows until ctx ends, and then waits until they are settled.
func (s *pump) run(ctx context.Context) {
	work := context.WithoutCancel(ctx)
	var writing sync.WaitGroup
	stop := make(chan struct{})
	writing.Go(func() { s.write(work, stop) })
	defer func() {
		close(stop)
		writing.Wait()
	}()

	poll := time.NewTimer(0)
	renew := time.Tick(s.cfg.Lease / 3)
	at := make(chan struct{})
	close(at)
	for look := false; ctx.Err() == nil; {
		if s.absorb() {
			look, s.again = true, true
		}
		if look && s.room() > 0 {
			if look = s.claim(work); !look {
				poll.Reset(s.cfg.PollInterval)
			}
		}
		var atOnce <-chan struct{}
		if look && s.room() > 0 {
			atOnce = at
		}
		out, next := s.next()
		select {
		case <-ctx.Done():
		case out <- next:
			s.handedOut()
		case <-atOnce:
		case <-s.signal:
		case <-poll.C:
			look = true
		case <-renew:
			s.renew(work)
		}
	}
	s.takeBack()
	close(s.out)
	s.drain(work, renew)
}

// takeBack releases the messages in the channel that have no receiver.
func (s *pump) takeBack() {
	for {
		select {
		case msg := <-s.out:
			msg.Release()
		default:
			return
		}
	}
}

// drain gives back the rows that were not handed out, and waits for the others until DrainTimeout.
func (s *pump) drain(ctx context.Context, renew <-chan time.Time) {
	deadline := time.After(s.cfg.DrainTimeout)
	for h := range s.holds {
		if !h.out {
			s.giveBack(h)
		}
	}
	s.ready, s.lanes = nil, map[string]*lane{}
	for s.absorb(); len(s.holds) > 0; s.absorb() {
		select {
		case <-s.signal:
		case <-renew:
			s.renew(ctx)
		case <-deadline:
			s.cfg.Logger.Warn("outbox: stopped with unsettled events",
				"table", s.cfg.Table, "events", len(s.holds))
			return
		}
	}
}

// absorb processes new settlements and reports whether there may be rows to claim.
func (s *pump) absorb() (look bool) {
	s.mu.Lock()
	settled, saved, woken := s.settled, s.saved, s.woken
	s.settled, s.saved, s.woken = nil, nil, false
	s.mu.Unlock()
	for _, e := range settled {
		s.advance(e)
	}
	for _, h := range saved {
		delete(s.holds, h)
		look = look || h.key != "" // the next row of the key may be claimed now
	}
	return look || woken
}

// advance readies the next event of an ordering key, or gives the later ones back. It ignores a late settlement whose key was
// claimed again meanwhile.
func (s *pump) advance(e settlement) {
	l := s.lanes[e.key]
	if l == nil || l.head != e.held {
		return
	}
	goOn := e.what == sent || e.what == acknowledged || e.what == parked && s.cfg.SkipParked
	if goOn && len(l.later) > 0 {
		l.head, l.later = l.later[0], l.later[1:]
		s.ready = append(s.ready, l.head)
		return
	}
	delete(s.lanes, e.key)
	for _, h := range l.later {
		s.giveBack(h)
	}
}

// room returns how many rows may be claimed now. It returns 0 while less than half a batch is free.
func (s *pump) room() int {
	free := min(2*s.cfg.BatchSize-len(s.holds), s.cfg.BatchSize)
	if free < (s.cfg.BatchSize+1)/2 {
		return 0
	}
	return free
}

// next returns the next message to hand out and the channel for it, or a nil channel if there is none.
func (s *pump) next() (chan<- *message.RawMessage, *message.RawMessage) {
	for len(s.ready) > 0 {
		h := s.ready[0]
		if time.Until(h.until) < s.cfg.Lease/3 { // it was not renewed, and its lease may end before the next loop
			s.ready = s.ready[1:]
			s.giveBack(h)
			continue
		}
		if h.msg == nil {
			var err error
			if h.msg, err = h.decode(); err != nil {
				s.ready = s.ready[1:]
				s.settle(h, parked, err)
				continue
			}
			h.msg.SetAcking(s.acking(h))
		}
		return s.out, h.msg
	}
	return nil, nil
}

func (s *pump) handedOut() {
	s.ready[0].out = true
	s.ready = s.ready[1:]
}

// acking returns an acking that settles a row.
func (s *pump) acking(h *held) *message.Acking {
	said := false
	say := func(what outcome, err error) {
		said = true
		s.settle(h, what, err)
	}
	return message.NewAckingFrom(message.AckingConfig{
		Ack:     func() { say(sent, nil) },
		Nack:    func(err error) { say(failed, err) },
		Release: func() { say(back, nil) },
		Settled: func() {
			if !said { // the caller of Acknowledged has written it
				say(acknowledged, nil)
			}
		},
		Forward: true,
	})
}
