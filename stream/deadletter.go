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
	"github.com/luatx/luatx/internal/sleep"
)

// putBackScript may be sent again after a lost reply: the second run finds the work done. The same holds for each script of
// this package.
var putBackScript = redis.NewScript(lua.Script("putback", nil))

// ErrNotDeadLetter says that an entry of a dead-letter stream was not written by a Subscriber.
var ErrNotDeadLetter = errors.New("stream: not a dead letter")

// DeadLetterKey returns the default key of a stream's dead-letter stream: the stream's key with :dead behind it, in
// braces where it needs them to hash to the stream's slot.
func DeadLetterKey(stream string) string { return group.DeadLetterKey(stream) }

// DeadLetter is an entry that a consumer group has given up.
type DeadLetter struct {
	// ID is the entry's id in the dead-letter stream.
	ID string
	// Stream, Entry and Group are where it was read.
	Stream, Entry, Group string
	// Consumer is whom it was last delivered to.
	Consumer string
	// Reason is the text of the last error, at most 1,024 bytes of it.
	Reason string
	// Deliveries is how often it was delivered to the group.
	Deliveries int64
	// First and Last are when it was delivered, by the server's clock: first as far as the consumer knew that gave it
	// up, to which deliveries by others before may be unknown.
	First, Last time.Time
	// Values are the entry's fields, as Unmarshal takes them.
	Values map[string]any
}

// DeadLetters lists a dead-letter stream, oldest first. An entry that is none comes with ErrNotDeadLetter, and the
// list goes on; another error ends it.
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

// PutBack moves entries of a dead-letter stream, by their ids there, back to the end of the streams that they came from,
// each in one step. It returns how many; those that are there no more do not count. Every group of a stream reads what
// comes back, as a message of the same id where the entry carries one.
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
		if dead.Packed {
			err = putBackPacked(ctx, client, key, dead)
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

// PutBackAll puts back what is in a dead-letter stream now, and nothing that comes to it meanwhile. It returns how many
// entries were put back; those that are no dead letters stay.
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
		if err != nil {
			continue
		}
		moved, err := PutBack(ctx, client, key, dead.ID)
		if n += moved; err != nil {
			return n, err
		}
	}
	return n, nil
}

// deadLetter returns what is known of a dead letter.
func deadLetter(d group.Dead) (DeadLetter, error) {
	if d.Foreign {
		return DeadLetter{ID: d.ID}, fmt.Errorf("%w: entry %s", ErrNotDeadLetter, d.ID)
	}
	return DeadLetter{
		ID: d.ID, Stream: d.Stream, Entry: d.Entry, Group: d.Group, Consumer: d.Consumer, Reason: d.Reason, Deliveries: d.Deliveries,
		First: d.First, Last: d.Last, Values: d.Values(),
	}, nil
}

// putBackTries bounds how often another write to the dead-letter stream may undo an attempt to put an entry back.
const putBackTries = 100

// putBackPacked does in a transaction of the client what internal/lua/putback.lua does: no script can write so many fields. It
// returns redis.Nil if the dead letter is gone.
func putBackPacked(ctx context.Context, client redis.UniversalClient, key string, dead group.Dead) error {
	for try := 1; ; try++ {
		err := client.Watch(ctx, func(tx *redis.Tx) error {
			there, err := tx.XRangeN(ctx, key, dead.ID, dead.ID, 1).Result()
			if err != nil {
				return err
			}
			if len(there) == 0 {
				return redis.Nil
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.XAdd(ctx, &redis.XAddArgs{Stream: dead.Stream, Values: dead.Fields})
				pipe.XDel(ctx, key, dead.ID)
				return nil
			})
			return err
		}, key)
		if !errors.Is(err, redis.TxFailedErr) || try == putBackTries || !sleep.For(ctx, readBackoff.Delay(1)/10) {
			return err
		}
	}
}
