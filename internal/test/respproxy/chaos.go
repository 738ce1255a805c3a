package respproxy

import (
	"math/rand/v2"
	"time"
)

// Chaos does things at random: each field but the last three is the probability, 0 to 1, that it happens to a request.
// Their sum should not pass 1. The same seed draws the same sequence; which request gets which draw depends on the
// order in which requests arrive.
type Chaos struct {
	DropRequest float64 // never executed, connection closed
	DropReply   float64 // executed, connection closed in place of the reply
	Cut         float64 // connection closed within the request or within the reply
	Duplicate   float64 // executed twice
	Delay       float64 // forwarded up to MaxDelay later
	Silent      float64 // never executed, or the reply kept back, on a connection that stays open

	MaxDelay time.Duration // Defaults to 20 ms.
	Seed     uint64
	Match    Matcher // Defaults to Work.
}

// Chaos starts doing things at random to the requests that no earlier rule decides; stop ends it.
func (p *Proxy) Chaos(c Chaos) (stop func()) {
	if c.MaxDelay <= 0 {
		c.MaxDelay = 20 * time.Millisecond
	}
	if c.Match == nil {
		c.Match = Work
	}
	rng := rand.New(rand.NewPCG(c.Seed, c.Seed))
	return p.On(func(cmd []string) Action { // rules run one at a time
		if !c.Match(cmd) {
			return Pass()
		}
		return c.draw(rng)
	})
}

func (c Chaos) draw(rng *rand.Rand) Action {
	r, coin, delay := rng.Float64(), rng.IntN(2) == 0, time.Duration(rng.Int64N(int64(c.MaxDelay)))
	for _, fault := range []struct {
		probability float64
		heads, tail Action
	}{
		{c.DropRequest, CutRequest(), CutRequest()},
		{c.DropReply, CutReply(), CutReply()},
		{c.Cut, SplitRequest(), SplitReply()},
		{c.Duplicate, Duplicate(), Duplicate()},
		{c.Delay, Delay(delay), Delay(delay)},
		{c.Silent, DropRequest(), DropReply()},
	} {
		if r < fault.probability {
			if coin {
				return fault.heads
			}
			return fault.tail
		}
		r -= fault.probability
	}
	return Pass()
}
