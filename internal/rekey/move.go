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

// errChanged says that somebody writes to a key that is moved.
var errChanged = errors.New("the key changed during the move; stop its writers")

const (
	// moveTries is for the servers: two dumps of a hash that is being rehashed may differ.
	moveTries = 3
	// expirySlack is how far the expiry times of a key and its copy may lie apart.
	expirySlack = 5 * time.Second
)

// snapshot is a key as it was at one moment.
type snapshot struct {
	dump string
	left time.Duration // until it expires; negative: never
}

// dumpOf reads a key; false where there is none.
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

// move is for keys that go to another slot of a cluster: copied, compared, then deleted where they have not changed.
func (r *runner) move(ctx context.Context, key, name string) (Outcome, error) {
	outcome, mine := Completed, "" // the copy that was made here
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

// dropIf deletes a key that is still what it was; 1: it did, 0: there is none, -1: it is not.
func (r *runner) dropIf(ctx context.Context, key, dump string) (int, error) {
	sum := sha1.Sum([]byte(dump)) //nolint:gosec // see the import
	return r.drop.Run(ctx, r.client, []string{key}, hex.EncodeToString(sum[:])).Int()
}

// copy writes the key under its new name; false where there is a key of that name.
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

// same says whether two keys hold the same and expire together.
func (r *runner) same(ctx context.Context, a string, x snapshot, b string, y snapshot) (bool, error) {
	if (x.left < 0) != (y.left < 0) || (x.left-y.left).Abs() > expirySlack {
		return false, nil
	}
	if x.dump == y.dump {
		return true, nil
	}
	return r.sameMembers(ctx, a, b)
}

// sameMembers is for types that a dump lists in an order of its server's own.
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
	return false, nil // texts and streams have one dump
}

// sameBy reports whether two keys read the same.
func sameBy[T any](a, b string, read func(key string) (T, error), equal func(x, y T) bool) (bool, error) {
	x, err := read(a)
	if err != nil {
		return false, err
	}
	y, err := read(b)
	return err == nil && equal(x, y), err
}
