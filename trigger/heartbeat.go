package trigger

import (
	"context"
	"slices"
	"time"
)

// keepBeating keeps what this consumer works on, or is about to, from being claimed, until Close.
func (g *group) keepBeating(ctx context.Context) {
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
func (g *group) say(ctx context.Context, idle time.Duration) error {
	for some := range slices.Chunk(g.mine(), pendingPage) {
		args := []any{g.cfg.Group, g.consumer, idle.Milliseconds()}
		for _, id := range some {
			args = append(args, id)
		}
		ctx, cancel := context.WithTimeout(ctx, replySlack)
		err := holdScript.Run(ctx, g.client, []string{g.cfg.Stream}, args...).Err()
		cancel()
		if err != nil && !isNoGroup(err) {
			return err
		}
	}
	return nil
}
