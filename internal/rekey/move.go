package rekey

import (
	"context"
	"crypto/sha1" //nolint:gosec // as the servers' scripts have it: it tells versions of one key apart
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// errChanged means that another client writes to a key during its move.
var errChanged = errors.New("the key changed during the move; stop its writers")

const (
	// moveTries is the maximum number of attempts to move a key. Two dumps of a hash may differ while the server
	// rehashes it.
	moveTries = 3
	// expirySlack is the maximum difference between the expiry times of a key and its copy.
	expirySlack = 5 * time.Second
)

// snapshot is the state of a key at one moment.
type snapshot struct {
	dump string
	left time.Duration // time until it expires; negative: never
}

// dumpOf returns the state of a key, and false if the key does not exist.
func (r *runner) dumpOf(ctx context.Context, key string) (snapshot, bool, error) {
	pipe := r.client.TxPipeline()
	dump, left := pipe.Dump(ctx, key), pipe.PTTL(ctx, key)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return snapshot{}, false, err
	}
	if errors.Is(dump.Err(), redis.Nil) {
		return snapshot{}, false, nil
	}
	if err := errors.Join(dump.Err(), left.Err()); err != nil {
		return snapshot{}, false, err
	}
	return snapshot{dump.Val(), left.Val()}, true, nil
}

// move moves a key to another slot of a cluster. It copies the key, compares the copy, and deletes the old key if it
// has not changed.
func (r *runner) move(ctx context.Context, key, name string) (Outcome, error) {
	outcome, mine := Completed, "" // the dump of the copy that this call made
	for range moveTries {
		was, there, err := r.dumpOf(ctx, key)
		if err != nil || !there {
			return Gone, err
		}
		copied, err := r.copy(ctx, name, was)
		if err != nil {
			return Failed, err
		}
		now, there, err := r.dumpOf(ctx, name)
		if err != nil {
			return Failed, err
		}
		if !there {
			continue // both expire about now
		}
		if copied {
			outcome, mine = Renamed, now.dump
		}
		same, err := r.same(ctx, key, was, name, now)
		switch {
		case err != nil:
			return Failed, err
		case same:
			left, err := r.dropIf(ctx, key, was.dump)
			if err != nil || left >= 0 {
				return outcome, err
			}
		case mine == "":
			return Taken, nil
		default:
			_, err := r.dropIf(ctx, name, mine)
			return Failed, errors.Join(errChanged, err)
		}
	}
	return Failed, errChanged
}

// dropIf deletes a key if its dump is unchanged. It returns 1 if it deleted the key, 0 if the key does not exist, and
// -1 if the key has changed.
func (r *runner) dropIf(ctx context.Context, key, dump string) (int, error) {
	sum := sha1.Sum([]byte(dump)) //nolint:gosec // see the import
	return r.drop.Run(ctx, r.client, []string{key}, hex.EncodeToString(sum[:])).Int()
}

// copy writes the key under its new name. It returns false if a key with that name exists.
func (r *runner) copy(ctx context.Context, name string, was snapshot) (bool, error) {
	left := was.left
	if left < 0 {
		left = 0 // never
	} else {
		left = max(left, time.Millisecond) // 0 would be never
	}
	err := r.client.Restore(ctx, name, left, was.dump).Err()
	if isRefusal(err) && strings.HasPrefix(err.Error(), "BUSYKEY") {
		return false, nil
	}
	return err == nil, err
}

// same reports whether two keys have the same content and about the same expiry time.
func (r *runner) same(ctx context.Context, a string, x snapshot, b string, y snapshot) (bool, error) {
	if (x.left < 0) != (y.left < 0) || (x.left-y.left).Abs() > expirySlack {
		return false, nil
	}
	if x.dump == y.dump {
		return true, nil
	}
	return r.sameMembers(ctx, a, b)
}

// sameMembers compares two keys of types whose dumps list the members in an order that depends on the server.
func (r *runner) sameMembers(ctx context.Context, a, b string) (bool, error) {
	kind, err := r.client.Type(ctx, a).Result()
	if err != nil {
		return false, err
	}
	other, err := r.client.Type(ctx, b).Result()
	if err != nil || kind != other {
		return false, err
	}
	client := r.client
	switch kind {
	case "hash":
		return sameBy(a, b, func(key string) (map[string]string, error) { return client.HGetAll(ctx, key).Result() }, maps.Equal)
	case "set":
		return sameBy(a, b, func(key string) ([]string, error) {
			members, err := client.SMembers(ctx, key).Result()
			slices.Sort(members)
			return members, err
		}, slices.Equal)
	case "zset":
		return sameBy(a, b, func(key string) ([]redis.Z, error) { return client.ZRangeWithScores(ctx, key, 0, -1).Result() }, slices.Equal)
	case "list":
		return sameBy(a, b, func(key string) ([]string, error) { return client.LRange(ctx, key, 0, -1).Result() }, slices.Equal)
	}
	return false, nil // the dump of a string or a stream has only one form
}

// sameBy reports whether read returns equal results for two keys.
func sameBy[T any](a, b string, read func(key string) (T, error), equal func(x, y T) bool) (bool, error) {
	x, err := read(a)
	if err != nil {
		return false, err
	}
	y, err := read(b)
	return err == nil && equal(x, y), err
}
