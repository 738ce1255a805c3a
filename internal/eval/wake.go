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
	// wakeChannels is the number of channels for wake-ups. Each channel serves a range of slots, and its own slot is in
	// the middle of that range. The channels are thus spread over a cluster, and are mostly on the nodes of their
	// shards.
	wakeChannels = 16
	wakeRange    = slot.Count / wakeChannels

	maxWakes    = 256 // pending slots of one channel; the sweep finds more
	wakeTimeout = time.Second
	wakeRest    = time.Minute // pause after a denial by the server
)

func (r *Runner) wakeChannel(i int) string {
	return r.namespace + ":{" + slot.Text(i*wakeRange+wakeRange/2) + "}:wake"
}

// wakes notifies the relays of other processes of shards with due events, without delaying the caller. If a notification is lost,
// the relays find the events in their sweep.
type wakes struct {
	runner   *Runner
	plain    atomic.Bool // the server has no sharded channels
	rests    atomic.Int64
	told     atomic.Bool // the denial was logged
	channels [wakeChannels]wakeChannel
}

type wakeChannel struct {
	mu     sync.Mutex
	slots  map[int]struct{} // the slots with a pending wake-up
	flying bool
}

// Wake notifies listening relays of a shard. It does not wait. A shard with a pending wake-up is notified once.
func (r *Runner) Wake(n int) { r.wakes.add(n) }

// WakePlainly sets whether the server is older than 7.0, which has no sharded channels.
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

// fly sends the pending wake-ups of a channel. It makes one round trip after the other until there are none. An
// unreachable node delays only its own channels.
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
	plain := w.plain.Load()
	if plain && cluster {
		return // PUBLISH would reach every node, and relays on such a cluster do not listen
	}
	err := w.publish(w.runner.wakeChannel(channel), slots, plain)
	if !plain && unknownCommand(err) {
		w.plain.Store(true)
		if !cluster { // several channels may find this out at once, and each repeats its own wake-ups
			err = w.publish(w.runner.wakeChannel(channel), slots, true)
		}
	}
	if Denied(err) {
		w.rests.Store(time.Now().Add(wakeRest).UnixNano())
		if w.told.CompareAndSwap(false, true) {
			w.runner.log.Warn("luatx: wake-up failed", "error", err)
		}
	}
}

func (w *wakes) publish(channel string, slots map[int]struct{}, plain bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), wakeTimeout)
	defer cancel()
	command := "spublish"
	if plain {
		command = "publish"
	}
	pipe := w.runner.client.Pipeline()
	for n := range slots {
		cmd := redis.NewCmd(ctx, command, channel, n)
		cmd.SetFirstKeyPos(1)
		_ = pipe.Process(ctx, once{cmd}) // queues the command
	}
	_, err := pipe.Exec(ctx)
	return err
}

// Denied reports whether an error is a permanent error of the server.
func Denied(err error) bool { return answered(err) && !passes(err) }

func unknownCommand(err error) bool {
	return answered(err) && strings.Contains(strings.ToLower(err.Error()), "unknown command")
}
