package stream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/lua"
)

// putBackScript may be sent again after a lost reply, because the second run has no effect. The same holds for each script
// of this package.
var putBackScript = redis.NewScript(lua.Script("putback", nil))

// ErrNotDeadLetter is the error for an entry of a dead-letter stream that no Subscriber wrote.
var ErrNotDeadLetter = errors.New("stream: not a dead letter")

// errNoStream is the error for a dead letter of a trigger of channels.
var errNoStream = errors.New("it is a message of a channel, which no stream can take back; publish it again")

// DeadLetterKey returns the default key of a stream's dead-letter stream: the stream's key followed by :dead. It adds
// braces if the key needs them to hash to the stream's slot.
func DeadLetterKey(stream string) string { return group.DeadLetterKey(stream) }

// DeadLetter is an entry that a consumer group could not process.
type DeadLetter struct {
	// ID is the entry's id in the dead-letter stream.
	ID string
	// Stream, Entry and Group are the stream, id and group of the original entry.
	Stream, Entry, Group string
	// Consumer is the consumer of the last delivery.
	Consumer string
	// Reason is the text of the last error, cut to 1,024 bytes.
	Reason string
	// Deliveries is the number of deliveries to the group.
	Deliveries int64
	// First and Last are the times of the first and last delivery, by the server's clock. First is as far as the last consumer
	// knew: it may not know of earlier deliveries to other consumers.
	First, Last time.Time
	// Values are the fields of the original entry, as Unmarshal expects them.
	Values map[string]any
}

// DeadLetters iterates over a dead-letter stream, oldest first. An entry that is not a dead letter comes with
// ErrNotDeadLetter, and the iteration continues. Any other error, such as the end of ctx, ends the iteration.
func DeadLetters(ctx context.Context, client redis.UniversalClient, key string) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		for from := "-"; ; {
			page, err := group.ReadDead(ctx, client, key, from, "+", group.Page)
			if err != nil {
				yield(DeadLetter{}, fmt.Errorf("stream: list dead letters of %q: %w", key, err))
				return
			}
			for _, dead := range page {
				if !yield(deadLetter(dead)) {
					return
				}
			}
			if len(page) < group.Page {
				return
			}
			from = group.Behind(page[len(page)-1].ID)
		}
	}
}

// PutBack moves entries of a dead-letter stream back to the end of their original streams, each in one step. The ids are
// those in the dead-letter stream. PutBack returns the number of moved entries, which excludes those that are already gone.
// It stops at the first error, such as a message of a channel (trigger.ModePubSub), which has no stream. Every group of the
// original stream reads a moved entry, as a message with the same id if the entry contains one.
func PutBack(ctx context.Context, client redis.UniversalClient, key string, ids ...string) (int, error) {
	n := 0
	for _, id := range ids {
		found, err := group.ReadDead(ctx, client, key, id, id, 1)
		if err != nil {
			return n, fmt.Errorf("stream: put back %s of %q: %w", id, key, err)
		}
		if len(found) == 0 {
			continue
		}
		dead := found[0]
		if _, err := deadLetter(dead); err != nil {
			return n, err
		}
		if dead.Stream == "" {
			return n, fmt.Errorf("stream: put back %s of %q: %w", id, key, errNoStream)
		}
		if dead.Packed {
			_, err = group.PutBackPacked(ctx, client, key, dead)
		} else {
			err = putBackScript.Run(ctx, client, []string{key, dead.Stream}, id).Err()
		}
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return n, fmt.Errorf("stream: put back %s of %q: %w", id, key, err)
		}
		n++
	}
	return n, nil
}

// PutBackAll moves all current entries of a dead-letter stream back, but none that are added meanwhile. It skips entries
// that are not dead letters, and messages of channels. It returns the number of moved entries, and stops at the first error.
func PutBackAll(ctx context.Context, client redis.UniversalClient, key string) (int, error) {
	last, err := client.XRevRangeN(ctx, key, "+", "-", 1).Result()
	if err != nil || len(last) == 0 {
		return 0, err
	}
	n := 0
	for dead, err := range DeadLetters(ctx, client, key) {
		if err != nil && !errors.Is(err, ErrNotDeadLetter) {
			return n, err
		}
		if group.Compare(dead.ID, last[0].ID) > 0 {
			break
		}
		if err != nil || dead.Stream == "" {
			continue
		}
		moved, err := PutBack(ctx, client, key, dead.ID)
		if n += moved; err != nil {
			return n, err
		}
	}
	return n, nil
}

// deadLetter converts a dead letter. It returns ErrNotDeadLetter if no Subscriber wrote the entry.
func deadLetter(d group.Dead) (DeadLetter, error) {
	if d.Foreign {
		return DeadLetter{ID: d.ID}, fmt.Errorf("%w: entry %s", ErrNotDeadLetter, d.ID)
	}
	return DeadLetter{
		ID: d.ID, Stream: d.Stream, Entry: d.Entry, Group: d.Group, Consumer: d.Consumer, Reason: d.Reason, Deliveries: d.Deliveries,
		First: d.First, Last: d.Last, Values: d.Values(),
	}, nil
}
