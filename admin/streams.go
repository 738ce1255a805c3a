package admin

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/stream"
)

// StreamState is a stream and who reads it.
type StreamState struct {
	Key string `json:"key"`
	// Length is how many entries it holds, DeadLetters how many its default dead-letter stream does.
	Length      int64   `json:"length"`
	DeadLetters int64   `json:"dead_letters"`
	Groups      []Group `json:"groups"`
}

// Group is a consumer group.
type Group struct {
	Name string `json:"name"`
	// Pending were delivered and not acknowledged.
	Pending int64 `json:"pending"`
	// Lag were not delivered yet; -1: some, the server does not know how many (before 7.0, or after entries were deleted).
	Lag int64 `json:"lag"`
	// Last is the id of the last entry that was delivered.
	Last string `json:"last"`
	// Oldest is the id of the first entry that is pending.
	Oldest    string     `json:"oldest,omitempty"`
	Consumers []Consumer `json:"consumers"`
}

// Consumer is a member of a group.
type Consumer struct {
	Name    string `json:"name"`
	Pending int64  `json:"pending"`
	// Idle is since it last asked for anything.
	Idle time.Duration `json:"idle_ns"`
}

// drained reports whether every group has read and acknowledged everything, as far as the server knows.
func (s StreamState) drained() bool {
	for _, g := range s.Groups {
		if g.Pending > 0 || g.Lag > 0 || g.Lag < 0 {
			return false
		}
	}
	return len(s.Groups) > 0 || s.Length == 0
}

// Streams tells of streams, by their keys, in order. A key that does not exist is an empty stream without groups. An error
// of one comes with its key, and the list goes on until ctx ends.
func (o *Operator) Streams(ctx context.Context, keys ...string) iter.Seq2[StreamState, error] {
	return func(yield func(StreamState, error) bool) {
		for _, key := range keys {
			s, err := o.stream(ctx, key)
			if err != nil {
				err = fmt.Errorf("admin: stream %q: %w", key, err)
			}
			if !yield(s, err) || ctx.Err() != nil {
				return
			}
		}
	}
}

func (o *Operator) stream(ctx context.Context, key string) (s StreamState, err error) {
	s.Key = key
	client := o.core.Client
	if s.Length, err = client.XLen(ctx, key).Result(); err != nil {
		return s, err
	}
	if s.DeadLetters, err = client.XLen(ctx, stream.DeadLetterKey(key)).Result(); err != nil {
		return s, err
	}
	groups, err := client.XInfoGroups(ctx, key).Result()
	if err != nil && strings.Contains(err.Error(), "no such key") {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	for _, info := range groups {
		g := Group{Name: info.Name, Pending: info.Pending, Lag: info.Lag, Last: info.LastDeliveredID}
		if info.Lag < 0 || info.Lag == 0 && info.EntriesRead == 0 {
			if g.Lag, err = o.lag(ctx, key, info.LastDeliveredID); err != nil {
				return s, err
			}
		}
		if g.Pending > 0 {
			pending, err := client.XPending(ctx, key, info.Name).Result()
			if err != nil {
				return s, err
			}
			g.Oldest = pending.Lower
		}
		consumers, err := client.XInfoConsumers(ctx, key, info.Name).Result()
		if err != nil {
			return s, err
		}
		for _, c := range consumers {
			g.Consumers = append(g.Consumers, Consumer{c.Name, c.Pending, max(0, c.Idle)})
		}
		s.Groups = append(s.Groups, g)
	}
	return s, nil
}

// lag is for a server that did not count what a group has read: 0 where nothing came behind, else unknown.
func (o *Operator) lag(ctx context.Context, key, last string) (int64, error) {
	behindIt, err := o.core.Client.XRangeN(ctx, key, group.Behind(cmp.Or(last, "0-0")), "+", 1).Result()
	if len(behindIt) > 0 {
		return -1, err
	}
	return 0, err
}
