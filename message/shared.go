package message

import "sync"

// NewSharedAcking returns an acking for n messages. Each message that gets it, by New or SetAcking, holds one share. The acking
// calls ack after n shares were acked, and nack at the first nack. The release of one share releases all, and calls neither. A
// nack or a release also settles the shares of the other messages, so that their later Ack returns false. An Acknowledged share
// counts as acked. A message counts once, even if it is acked several times; a Copy has the same share. If n is below one,
// NewSharedAcking calls ack at once and returns nil.
func NewSharedAcking(n int, ack func(), nack func(error)) *Acking {
	if n < 1 {
		if ack != nil {
			ack()
		}
		return nil
	}
	return &Acking{group: &group{waiting: n, cfg: groupConfig{ack: ack, nack: nack}}}
}

// group is the state that the shares of a shared acking have in common.
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

// settle counts the settlement of one share and settles the group if that decides it.
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

// follow settles a share after another one has settled its group.
func (a *Acking) follow(o outcome, err error) {
	if a.decide(o, err) {
		a.finish()
	}
}
