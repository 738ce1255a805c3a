package eval

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/slot"
)

// wakeSilence is the time for which a subscription may be silent before a ping. After twice that time, Listen gives it
// up.
const wakeSilence = 10 * time.Second

// ErrNoChannels is returned by Listen on a cluster older than 7.0, which has no sharded channels.
var ErrNoChannels = errors.New("a cluster has wake-ups from 7.0 on")

var (
	errSilent = errors.New("the server is silent")
	errMoved  = errors.New("the channel's slot has moved")
)

// WakeSubscriptions returns the lists of channels to pass to Listen for the given slots. In a cluster, channels of different
// slots cannot share a subscription.
func (r *Runner) WakeSubscriptions(slots []int) [][]string {
	channels := r.wakeChannels(slots)
	if _, cluster := r.client.(*redis.ClusterClient); !cluster {
		return [][]string{channels}
	}
	each := make([][]string, len(channels))
	for i := range channels {
		each[i] = channels[i : i+1]
	}
	return each
}

func (r *Runner) wakeChannels(slots []int) []string {
	var wanted [wakeChannels]bool
	for _, n := range slots {
		wanted[n/wakeRange] = true
	}
	var channels []string
	for i, want := range wanted {
		if want {
			channels = append(channels, r.wakeChannel(i))
		}
	}
	return channels
}

// Listen opens one subscription and calls heard for each slot with a wake-up. It returns when ctx or the subscription
// ends.
func (r *Runner) Listen(ctx context.Context, channels []string, heard func(slot int)) error {
	_, cluster := r.client.(*redis.ClusterClient)
	subscription := r.client.SSubscribe(ctx, channels...)
	if !cluster { // a sender may not know yet that the server's version has changed
		_ = subscription.Subscribe(ctx, channels...) // the error is returned again below
	}
	defer func() { _ = subscription.Close() }()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // ends a blocked read
	for silent := false; ; {
		msg, err := subscription.ReceiveTimeout(ctx, wakeSilence)
		var late net.Error
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case unknownCommand(err) && cluster:
			return ErrNoChannels
		case unknownCommand(err):
			continue // the plain subscription remains
		case errors.As(err, &late) && late.Timeout() && !silent:
			silent = true
			if err := subscription.Ping(ctx); err != nil {
				return err
			}
			continue
		case errors.As(err, &late) && late.Timeout():
			return errSilent
		default:
			r.reload(ctx, err)
			return err
		}
		silent = false
		switch msg := msg.(type) {
		case *redis.Message:
			if n, err := strconv.Atoi(msg.Payload); err == nil && n >= 0 && n < slot.Count {
				heard(n)
			}
		case *redis.Subscription:
			if msg.Kind == "sunsubscribe" {
				r.reload(ctx, errMoved)
				return errMoved
			}
		}
	}
}
