package message

import "sync"

// NewSharedAcking makes an acking for n messages. Each message that is given it, by New or SetAcking, holds one share.
// The ack function is called when n shares have been acked, the nack function at the first nack; a release of one
// share releases all, and neither function is called. A nack or a release settles the shares of the other messages too,
// so that their later Ack reports false. An Acknowledged share counts as acked.
// A message never counts twice, however often it is acked; Copy shares the share.
// For n below one there is nothing to wait for: ack is called at once and the acking is nil.
func NewSharedAcking(n int, ack func(), nack func(error)) *Acking {
	if n < 1 {
		if ack != nil {
			ack()
		}
		return nil
	}
	return &Acking{group: &group{waiting: n, cfg: groupConfig{ack: ack, nack: nack}}}
}

// group is what the shares of a shared acking have in common.
type group struct {
	cfg groupConfig

	mu      sync.Mutex
	waiting int
	outcome outcome
	err     error
	shares  []*Acking
}

type groupConfig struct {
	ack     func()
	nack    func(error)
	release func()
	forward bool // see AckingConfig.Forward
}

func (g *group) newShare() *Acking {
	s := &Acking{group: g, share: true}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.outcome == nacked || g.outcome == released {
		s.follow(g.outcome, g.err)
		return s
	}
	g.shares = append(g.shares, s)
	return s
}

// settle takes one share's settlement into account.
func (g *group) settle(o outcome, err error) {
	g.mu.Lock()
	if g.outcome != unsettled {
		g.mu.Unlock()
		return
	}
	if o == acked || o == acknowledged {
		g.waiting--
		if g.waiting > 0 {
			g.mu.Unlock()
			return
		}
		o = acked
	}
	g.outcome, g.err = o, err
	shares := g.shares
	g.shares = nil
	g.mu.Unlock()

	if o != acked {
		defer func() {
			for _, s := range shares {
				s.follow(o, err)
			}
		}()
	}
	g.tell(o, err)
}

func (g *group) tell(o outcome, err error) {
	switch {
	case o == acked && g.cfg.ack != nil:
		g.cfg.ack()
	case o == nacked && g.cfg.nack != nil:
		g.cfg.nack(err)
	case o == released && g.cfg.release != nil:
		g.cfg.release()
	}
}

// follow settles a share because its group has been settled by another one.
func (a *Acking) follow(o outcome, err error) {
	if a.decide(o, err) {
		a.finish()
	}
}
