package admin

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
)

// lookEvery is the time between two queries for the fate of a canary.
const lookEvery = 50 * time.Millisecond

// canary follows the entries that were put back first.
type canary struct {
	client  redis.UniversalClient
	entries []*putBack
	read    map[string]string // by dead-letter stream: the id up to which its dead letters were read
}

// putBack is an entry that was put back.
type putBack struct {
	source                  source
	stream, group, id       string // an id of "" is not known
	acknowledged, deadAgain bool
}

func newCanary(client redis.UniversalClient, sources []source) *canary {
	c := &canary{client: client, read: map[string]string{}}
	for _, s := range sources {
		c.read[s.key] = s.last
	}
	return c
}

func (c *canary) add(l DeadLetter, entry string) {
	c.entries = append(c.entries, &putBack{source: l.source, stream: l.Stream, group: l.Group, id: entry})
}

// watch waits until the group has acknowledged the canary, or one of its entries is a dead letter again.
func (a *deadAct) watch(ctx context.Context, c *canary) error {
	deadline, next := time.After(cmp.Or(a.opts.CanaryWait, 30*time.Second)), time.Tick(lookEvery)
	for over := false; ; {
		fate, err := c.look(ctx)
		if err != nil {
			return a.failed("follow", err)
		}
		a.result.Canary = fate
		a.result.Stopped = fate.DeadAgain > 0 || over && fate.Trying > 0
		a.report()
		if a.result.Stopped || fate.Trying == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline:
			over = true
		case <-next:
		}
	}
}

// look returns the fate of the entries. It asks for acknowledgements first: an entry that becomes a dead letter is acknowledged in the
// same step, so that the dead letters that are read afterwards hold it.
func (c *canary) look(ctx context.Context) (fate DeadLetterCanary, err error) {
	if err := c.lookAtGroups(ctx); err != nil {
		return fate, err
	}
	if err := c.lookAtDead(ctx); err != nil {
		return fate, err
	}
	for _, e := range c.entries {
		switch {
		case e.deadAgain:
			fate.DeadAgain++
		case e.acknowledged:
			fate.Handled++
		default:
			fate.Trying++
		}
	}
	return fate, nil
}

// lookAtGroups finds the entries that were delivered to their group and are not pending any more.
func (c *canary) lookAtGroups(ctx context.Context) error {
	last := map[[2]string]string{} // by stream and group: the id of the last entry that was delivered
	asked := map[string]bool{}
	for _, e := range c.entries {
		if e.acknowledged || e.id == "" {
			continue
		}
		if !asked[e.stream] {
			asked[e.stream] = true
			groups, err := c.client.XInfoGroups(ctx, e.stream).Result()
			if err != nil && !strings.Contains(err.Error(), "no such key") {
				return err
			}
			for _, g := range groups {
				last[[2]string{e.stream, g.Name}] = g.LastDeliveredID
			}
		}
		delivered, known := last[[2]string{e.stream, e.group}]
		if !known || group.Compare(delivered, e.id) < 0 {
			continue
		}
		pending, err := c.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: e.stream, Group: e.group, Start: e.id, End: e.id, Count: 1}).Result()
		if err != nil {
			return err
		}
		e.acknowledged = len(pending) == 0
	}
	return nil
}

// lookAtDead finds the entries that are dead letters again.
func (c *canary) lookAtDead(ctx context.Context) error {
	type name struct{ key, stream, group, id string }
	ours := map[name]*putBack{}
	for _, e := range c.entries {
		if e.id != "" {
			ours[name{e.source.key, e.stream, e.group, e.id}] = e
		}
	}
	for key := range c.read {
		for {
			page, err := group.ReadDead(ctx, c.client, key, group.Behind(c.read[key]), "+", group.Page)
			if err != nil {
				return err
			}
			for _, d := range page {
				if e := ours[name{key, d.Stream, d.Group, d.Entry}]; e != nil {
					e.deadAgain = true
				}
				c.read[key] = d.ID
			}
			if len(page) < group.Page {
				break
			}
		}
	}
	return nil
}
