package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/cmd/luatx/internal/shop"
	entryid "github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/piped"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

// observer observes a run in Redis, without the proxies.
type observer struct {
	client redis.UniversalClient
	keys   layout
	mode   shop.Mode
	store  *outbox.Store
}

// given is the position of a group in its stream.
type given struct {
	last    string // id of the last delivered entry
	pending int64
}

// settled returns the number of acknowledged orders, successful or not.
func (o observer) settled(ctx context.Context, fed *feeder) (int, error) {
	keys := o.each(o.keys.orders)
	groups, err := o.groups(ctx, keys, group)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, key := range keys {
		n += max(0, fed.upTo(key, groups[key].last)-int(groups[key].pending)) // entries may be visible before the feeder has recorded them
	}
	return n, nil
}

// groups returns the position of the named group on each stream. A stream without the group gets the zero position.
func (o observer) groups(ctx context.Context, keys []string, name string) (map[string]given, error) {
	pipe := o.client.Pipeline()
	cmds := make([]*redis.XInfoGroupsCmd, len(keys))
	for i, key := range keys {
		cmds[i] = pipe.XInfoGroups(ctx, key)
	}
	_, _ = piped.Exec(ctx, pipe) // each command has its own error
	found := make(map[string]given, len(keys))
	for i, cmd := range cmds {
		infos, err := cmd.Result()
		if err != nil && !isMissing(err) {
			return nil, fmt.Errorf("read %s: %w", keys[i], err)
		}
		for _, info := range infos {
			if info.Name == name {
				found[keys[i]] = given{info.LastDeliveredID, info.Pending}
			}
		}
	}
	return found, nil
}

func isMissing(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.Contains(err.Error(), "no such key")
}

// quiet reports whether every event has reached the books. It checks from the source to the end, so that it misses nothing.
// The orders must be settled already.
func (o observer) quiet(ctx context.Context) (bool, error) {
	if o.mode == shop.Pipeline {
		if quiet, err := o.drained(ctx, o.keys.outbox, stream.OutboxGroup); !quiet || err != nil {
			return false, err
		}
	} else {
		counts, err := o.store.Counts(ctx)
		if err != nil || counts.Pending > 0 {
			return false, err
		}
	}
	return o.drained(ctx, o.keys.sold, group)
}

// drained reports whether a group has read and acknowledged all of the streams.
func (o observer) drained(ctx context.Context, key func(tag string) string, name string) (bool, error) {
	keys := o.each(key)
	groups, err := o.groups(ctx, keys, name)
	if err != nil {
		return false, err
	}
	pipe := o.client.Pipeline()
	cmds := make([]*redis.XMessageSliceCmd, len(keys))
	for i, key := range keys {
		cmds[i] = pipe.XRevRangeN(ctx, key, "+", "-", 1)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return false, err
	}
	for i, cmd := range cmds {
		for _, entry := range cmd.Val() {
			if g := groups[keys[i]]; g.pending > 0 || entryid.Compare(g.last, entry.ID) < 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

// read reads the books.
func (o observer) read(ctx context.Context) (shop.Written, error) {
	var w shop.Written
	for _, book := range []struct {
		totals *map[string]int64
		key    func(tag string) string
	}{{&w.Spent, o.keys.spent}, {&w.Stock, o.keys.stock}, {&w.Applied, o.keys.applied}, {&w.Sold, o.keys.lines}} {
		*book.totals = map[string]int64{}
		for _, key := range o.each(book.key) {
			if err := o.readHash(ctx, key, *book.totals); err != nil {
				return shop.Written{}, fmt.Errorf("read %s: %w", key, err)
			}
		}
	}
	return w, nil
}

// readHash adds the numbers of a hash to totals.
func (o observer) readHash(ctx context.Context, key string, totals map[string]int64) error {
	fields, err := o.client.HGetAll(ctx, key).Result()
	if err != nil {
		return err
	}
	for name, text := range fields {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		totals[name] += n
	}
	return nil
}

// each returns the key of every tag.
func (o observer) each(key func(tag string) string) []string {
	var keys []string
	for _, tag := range o.keys.space.Tags() {
		keys = append(keys, key(tag))
	}
	return keys
}
