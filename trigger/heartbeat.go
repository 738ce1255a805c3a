package trigger

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/group"
)

// keepBeating keeps what this consumer works on, or is about to, from being claimed, until Close.
func (g *grouped) keepBeating(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.beating != nil {
		return
	}
	ctx, g.beating = context.WithCancel(context.WithoutCancel(ctx))
	g.beat.Go(func() {
		tick := time.NewTicker(max(g.cfg.MaxIdleTime/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := g.say(ctx, 0); err != nil && ctx.Err() == nil {
				g.log.Warn("trigger: heartbeat failed, others may claim what is worked on", "error", err)
			}
		}
	})
}

// say says how long the entries of this consumer have been idle.
func (g *grouped) say(ctx context.Context, idle time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, replySlack)
	defer cancel()
	if err := g.member.Hold(ctx, g.mine(), idle, false); err != nil && !group.IsGone(err) {
		return err
	}
	return nil
}
