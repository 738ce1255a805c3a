package stream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/sleep"
)

// deadFields is how many fields internal/lua/deadletter.lua puts before those of the entry.
const deadFields = 8

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
			page, err := entriesRaw(ctx, client, key, from, "+", group.Page)
			if err != nil {
				yield(DeadLetter{}, fmt.Errorf("stream: list dead letters of %q: %w", key, err))
				return
			}
			for _, raw := range page {
				if !yield(readDead(raw)) {
					return
				}
			}
			if len(page) < group.Page {
				return
			}
			from = group.Behind(page[len(page)-1].id)
		}
	}
}

// PutBack moves entries of a dead-letter stream, by their ids there, back to the end of the streams that they came from,
// each in one step. It returns how many; those that are there no more do not count. Every group of a stream reads what
// comes back, as a message of the same id where the entry carries one.
func PutBack(ctx context.Context, client redis.UniversalClient, key string, ids ...string) (int, error) {
	n := 0
	for _, id := range ids {
		found, err := entriesRaw(ctx, client, key, id, id, 1)
		if err != nil {
			return n, fmt.Errorf("stream: put back %s of %q: %w", id, key, err)
		}
		if len(found) == 0 {
			continue
		}
		dead, err := readDead(found[0])
		if err != nil {
			return n, err
		}
		if found[0].fields[0] == fieldPacked {
			err = putBackPacked(ctx, client, key, dead.Stream, found[0])
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

func readDead(raw rawEntry) (DeadLetter, error) {
	notOne := fmt.Errorf("%w: entry %s", ErrNotDeadLetter, raw.id)
	entry := raw.fields
	if len(entry) > 2 && entry[0] == fieldPacked {
		texts, ok := unpackTexts(entry[1])
		if !ok {
			return DeadLetter{ID: raw.id}, notOne
		}
		entry = append(slices.Clone(entry[2:]), texts...)
	}
	if len(entry) < 2*deadFields || entry[0] != "dead-reason" {
		return DeadLetter{ID: raw.id}, notOne
	}
	own, rest := valuesOf(entry[:2*deadFields]), valuesOf(entry[2*deadFields:])
	at := func(field string) time.Time {
		ms, _ := strconv.ParseInt(fieldText(own, field), 10, 64)
		return time.UnixMilli(ms)
	}
	deliveries, _ := strconv.ParseInt(fieldText(own, "dead-deliveries"), 10, 64)
	return DeadLetter{
		ID: raw.id, Stream: fieldText(own, "dead-stream"), Entry: fieldText(own, "dead-entry"), Group: fieldText(own, "dead-group"),
		Consumer: fieldText(own, "dead-consumer"), Reason: fieldText(own, "dead-reason"), Deliveries: deliveries,
		First: at("dead-first"), Last: at("dead-last"), Values: rest,
	}, nil
}

// rawEntry is an entry with its fields in their order.
type rawEntry struct {
	id     string
	fields []string // names and values
}

func valuesOf(fields []string) map[string]any {
	out := make(map[string]any, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		out[fields[i]] = fields[i+1]
	}
	return out
}

// entriesRaw reads entries without losing the order of their fields, as XRANGE of the client does.
func entriesRaw(ctx context.Context, client redis.UniversalClient, key, from, to string, count int) ([]rawEntry, error) {
	cmd := redis.NewSliceCmd(ctx, "xrange", key, from, to, "count", count)
	cmd.SetFirstKeyPos(1)
	if err := client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	var out []rawEntry
	for _, item := range cmd.Val() {
		pair, _ := item.([]any)
		if len(pair) != 2 {
			return nil, fmt.Errorf("unexpected entry %.100v", item)
		}
		list, _ := pair[1].([]any)
		raw := rawEntry{id: fmt.Sprint(pair[0]), fields: make([]string, len(list))}
		for i, v := range list {
			raw.fields[i] = fmt.Sprint(v)
		}
		out = append(out, raw)
	}
	return out, nil
}

// fieldPacked is the first field of a dead letter whose entry has more fields than a script can write. It holds all names
// and values of the entry, in their order; see internal/lua/deadletter.lua.
const fieldPacked = "dead-packed"

// putBackTries bounds how often another write to the dead-letter stream may undo an attempt to put an entry back.
const putBackTries = 100

// unpackTexts returns the texts that internal/lua/deadletter.lua has packed: for each its length, a colon and the text.
func unpackTexts(packed string) (texts []string, ok bool) {
	for packed != "" {
		length, rest, found := strings.Cut(packed, ":")
		n, err := strconv.Atoi(length)
		if !found || err != nil || n < 0 || n > len(rest) {
			return nil, false
		}
		texts, packed = append(texts, rest[:n]), rest[n:]
	}
	return texts, len(texts) > 0 && len(texts)%2 == 0
}

// putBackPacked does in a transaction of the client what internal/lua/putback.lua does: no script can write so many fields. It
// returns redis.Nil if the dead letter is gone.
func putBackPacked(ctx context.Context, client redis.UniversalClient, key, to string, dead rawEntry) error {
	texts, ok := unpackTexts(dead.fields[1])
	if !ok {
		return fmt.Errorf("%w: entry %s", ErrNotDeadLetter, dead.id)
	}
	for try := 1; ; try++ {
		err := client.Watch(ctx, func(tx *redis.Tx) error {
			there, err := tx.XRangeN(ctx, key, dead.id, dead.id, 1).Result()
			if err != nil {
				return err
			}
			if len(there) == 0 {
				return redis.Nil
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.XAdd(ctx, &redis.XAddArgs{Stream: to, Values: texts})
				pipe.XDel(ctx, key, dead.id)
				return nil
			})
			return err
		}, key)
		if !errors.Is(err, redis.TxFailedErr) || try == putBackTries || !sleep.For(ctx, readBackoff.Delay(1)/10) {
			return err
		}
	}
}
