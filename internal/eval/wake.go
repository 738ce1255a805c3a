package eval

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/slot"
)

const (
	// wakeChannels is how many channels carry wake-ups. Each is for a range of slots and hashes into its middle: so
	// they are spread over a cluster, and mostly lie on the node of the shard that they speak of.
	wakeChannels = 16
	wakeRange    = slot.Count / wakeChannels

	maxWakes    = 256 // slots that wait to be told on one channel; more are left to the sweep
	wakeTimeout = time.Second
	wakeRest    = time.Minute // after the server has refused
)

func (r *Runner) wakeChannel(i int) string {
	return r.namespace + ":{" + slot.Text(i*wakeRange+wakeRange/2) + "}:wake"
}

// wakes tells relays of other processes of shards in which there is something to do, off the caller's path. Whatever
// is lost on the way the sweep finds.
type wakes struct {
	runner   *Runner
	plain    atomic.Bool // the server knows no sharded channels
	rests    atomic.Int64
	told     atomic.Bool // that the server refuses
	channels [wakeChannels]wakeChannel
}

type wakeChannel struct {
	mu     sync.Mutex
	slots  map[int]struct{} // to be told
	flying bool
}

// Wake tells the relays that listen to look at a shard. It does not wait. A shard that waits to be told is told once.
func (r *Runner) Wake(n int) { r.wakes.add(n) }

// WakePlainly says whether the server is older than 7.0, which has no sharded channels.
func (r *Runner) WakePlainly(plain bool) { r.wakes.plain.Store(plain) }

func (w *wakes) add(n int) {
	if time.Now().UnixNano() < w.rests.Load() {
		return
	}
	c := &w.channels[n/wakeRange]
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.slots) >= maxWakes {
		return
	}
	if c.slots == nil {
		c.slots = make(map[int]struct{})
	}
	c.slots[n] = struct{}{}
	if !c.flying {
		c.flying = true
		go w.fly(n / wakeRange)
	}
}

// fly sends what waits for a channel, in one round trip after the other, until nothing does. A node that is down
// holds up its own channels alone.
func (w *wakes) fly(channel int) {
	for {
		slots := w.channels[channel].drain()
		if len(slots) == 0 {
			return
		}
		w.send(channel, slots)
	}
}

func (c *wakeChannel) drain() map[int]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	slots := c.slots
	c.slots, c.flying = nil, len(slots) > 0
	return slots
}

func (w *wakes) send(channel int, slots map[int]struct{}) {
	_, cluster := w.runner.client.(*redis.ClusterClient)
	if w.plain.Load() && cluster {
		return // PUBLISH would go to every node, and its relays listen to none
	}
	err := w.publish(w.runner.wakeChannel(channel), slots)
	if unknownCommand(err) && !w.plain.Swap(true) && !cluster {
		err = w.publish(w.runner.wakeChannel(channel), slots)
	}
	if Denied(err) {
		w.rests.Store(time.Now().Add(wakeRest).UnixNano())
		if w.told.CompareAndSwap(false, true) {
			w.runner.log.Warn("luatx: relays of other processes are not woken; they find events when they sweep", "error", err)
		}
	}
}

func (w *wakes) publish(channel string, slots map[int]struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), wakeTimeout)
	defer cancel()
	command := "spublish"
	if w.plain.Load() {
		command = "publish"
	}
	pipe := w.runner.client.Pipeline()
	for n := range slots {
		cmd := redis.NewCmd(ctx, command, channel, n)
		cmd.SetFirstKeyPos(1)
		_ = pipe.Process(ctx, once{cmd}) // queues it
	}
	_, err := pipe.Exec(ctx)
	return err
}

// Denied reports whether an error is a server's own, and does not go away by itself.
func Denied(err error) bool { return answered(err) && !passes(err) }

func unknownCommand(err error) bool {
	return answered(err) && strings.Contains(strings.ToLower(err.Error()), "unknown command")
}
