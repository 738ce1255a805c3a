package stream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/sleep"
)

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
