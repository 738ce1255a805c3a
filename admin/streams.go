package admin

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/stream"
)

// StreamState describes a stream and its groups.
type StreamState struct {
	Key string `json:"key"`
	// Length is the number of its entries, and DeadLetters the number of entries of its default dead-letter stream.
	Length      int64 `json:"length"`
	DeadLetters int64 `json:"dead_letters"`
	// OldestDeadLetter is when the oldest of these became a dead letter. It is zero if there is none.
	OldestDeadLetter time.Time `json:"oldest_dead_letter,omitzero"`
	Groups           []Group   `json:"groups"`
	// Missing reports that no such stream exists.
	Missing bool `json:"missing,omitempty"`
}

// Group is a consumer group.
type Group struct {
	Name string `json:"name"`
	// Pending is the number of entries that were delivered and not acknowledged.
	Pending int64 `json:"pending"`
	// Lag is the number of entries that were not delivered yet. It is -1 if there are some but the server does not know how
	// many (before Redis 7.0, or after entries were deleted).
	Lag int64 `json:"lag"`
	// Last is the id of the last entry that was delivered.
	Last string `json:"last"`
	// Oldest is the id of the first pending entry.
	Oldest    string     `json:"oldest,omitempty"`
	Consumers []Consumer `json:"consumers"`
}

// Consumer is a member of a group.
type Consumer struct {
	Name    string `json:"name"`
	Pending int64  `json:"pending"`
	// Idle is the time since its last request.
	Idle time.Duration `json:"idle_ns"`
}

// drained reports whether every group has read and acknowledged everything, as far as the server knows. A stream that does not
// exist may have been misspelled.
func (s StreamState) drained() bool {
	if s.Missing {
		return false
	}
	for _, g := range s.Groups {
		if g.Pending > 0 || g.Lag != 0 {
			return false
		}
	}
	return len(s.Groups) > 0 || s.Length == 0
}

// Streams returns streams and their groups by their keys, in order. If no key has a name, but partitions of the
// Transactor's keyspace have a stream of that name, it returns these. A stream that does not exist has no entries and no
// groups, and is Missing. The error of a stream comes with its key, and the iteration continues until ctx ends.
func (o *Operator) Streams(ctx context.Context, names ...string) iter.Seq2[StreamState, error] {
	return func(yield func(StreamState, error) bool) {
		for _, name := range names {
			if !o.streamsOf(ctx, name, yield) {
				return
			}
		}
	}
}

// streamsOf yields the stream of a key, or those of the partitions.
func (o *Operator) streamsOf(ctx context.Context, name string, yield func(StreamState, error) bool) bool {
	s, err := o.stream(ctx, name)
	if err == nil && s.Missing {
		var keys []string
		if keys, err = o.partitionsOf(ctx, name); len(keys) > 0 {
			for _, key := range keys {
				s, err = o.stream(ctx, key)
				s.Missing = false // a partition to which nothing was added
				if !yield(s, streamError(key, err)) || ctx.Err() != nil {
					return false
				}
			}
			return true
		}
	}
	return yield(s, streamError(name, err)) && ctx.Err() == nil
}

func streamError(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("admin: stream %q: %w", key, err)
}

// partitionsOf returns the keys of a partitioned stream, or none if no partition has one. It also returns none if the user
// has rights on a stream, but not on the keys of partitions.
func (o *Operator) partitionsOf(ctx context.Context, name string) ([]string, error) {
	keys := stream.PartitionKeys(o.transactor.Keyspace(), name)
	for chunk := range slices.Chunk(keys, slotsAtOnce) {
		pipe := o.core.Client.Pipeline()
		var replies []*redis.IntCmd
		for _, key := range chunk {
			replies = append(replies, pipe.Exists(ctx, key))
		}
		_, err := pipe.Exec(ctx)
		if isNoPermission(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(replies, func(reply *redis.IntCmd) bool { return reply.Val() > 0 }) {
			return keys, nil
		}
	}
	return nil, nil
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
	if s.DeadLetters > 0 {
		first, err := client.XRangeN(ctx, stream.DeadLetterKey(key), "-", "+", 1).Result()
		if err != nil {
			return s, err
		}
		for _, oldest := range first {
			s.OldestDeadLetter = pretty.Time(group.Time(oldest.ID))
		}
	}
	groups, err := client.XInfoGroups(ctx, key).Result()
	if err != nil && strings.Contains(err.Error(), "no such key") {
		s.Missing = s.DeadLetters == 0
		return s, nil
	}
	if err != nil {
		return s, err
	}
	for _, info := range groups {
		g := Group{Name: info.Name, Pending: info.Pending, Last: info.LastDeliveredID}
		if g.Lag, err = group.Lag(ctx, client, key, info); err != nil {
			return s, err
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
