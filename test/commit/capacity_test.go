package commit_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

func wantFull(t testing.TB, err error, what string) {
	t.Helper()
	var full *luatx.OutboxFullError
	if !errors.As(err, &full) || full.What != what || !errors.Is(err, luatx.ErrOutboxFull) || full.Limit == 0 || !strings.Contains(err.Error(), strconv.Itoa(full.Limit)) {
		t.Errorf("%v, want that %s is full", err, what)
	}
}

// TestCapacityIsExact checks that with any number of concurrent commits, the outbox accepts exactly its limits of events,
// bytes and events of an ordering key.
func TestCapacityIsExact(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*luatx.Config){
		"events": func(c *luatx.Config) { c.OutboxCapacity = 100 },
		"bytes":  func(c *luatx.Config) { c.OutboxBytes = 1000 },
		"lane":   func(c *luatx.Config) { c.LaneCapacity = 100 },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				tr := rig.NewTransactor(t, client, change)
				committed := rig.Key(t, tr, "a", "committed")
				event := func(id string) luatx.Event {
					return luatx.Event{ID: id, Body: bodyOf(9), Key: map[bool]string{true: "k"}[what == "lane"]}
				}
				var next, taken atomic.Int64
				var committers sync.WaitGroup
				for range 64 {
					committers.Go(func() {
						for next.Load() < 300 {
							n := next.Add(1)
							_, err := tr.Transact(t.Context(), "a", func(tx *luatx.Tx) error {
								for i := range n%3 + 1 {
									if err := tx.Emit(event(fmt.Sprint(n, "-", i))); err != nil {
										return err
									}
								}
								return luatx.Queued(tx.Pipeline().IncrBy(t.Context(), committed, n%3+1))
							})
							if err == nil {
								taken.Add(n%3 + 1)
							} else {
								wantFull(t, err, what)
							}
						}
					})
				}
				committers.Wait()
				for i := 0; ; i++ { // the last places
					if _, err := tr.Enqueue(redistest.Soon(t), "a", event(fmt.Sprint("last-", i))); err != nil {
						wantFull(t, err, what)
						break
					}
					taken.Add(1)
					client.Incr(t.Context(), committed)
				}
				entries := client.HLen(t.Context(), shardOf(tr).Key("entries")).Val()
				sum, _ := client.Get(t.Context(), committed).Int64()
				if entries != 100 || sum != 100 || taken.Load() != 100 || gauge(t, tr, "events") != 100 || gauge(t, tr, "bytes") != 1000 {
					t.Errorf("%d events, %d committed, %d reported, gauges %v", entries, sum, taken.Load(), client.HGetAll(t.Context(), shardOf(tr).Key("counts")).Val())
				}
				known := client.HKeys(t.Context(), shardOf(tr).Key("entries")).Val()[0]
				assert.NoError(t, emitAll(t, tr, "a", event(known)), "a known event needs no room")
			})
		})
	}
}

// TestShardAtItsLimitOfParkedEventsRejectsNewOnes also checks that its existing events can still be parked. A lane that waits
// behind a parked event takes no room from other lanes.
func TestShardAtItsLimitOfParkedEventsRejectsNewOnes(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.ParkedCapacity, c.LaneCapacity = 2, 3 })
		event := func(id, key string) luatx.Event { return luatx.Event{ID: id, Key: key, Body: []byte("{}")} }
		redistest.Must(t, emitAll(t, tr, "a", event("1", "k"), event("2", "k"), event("3", "k"), event("4", ""), event("5", "")))
		settle(t, tr, "1", "parked")
		before := rig.Dump(t, client, tr)
		wantFull(t, emitAll(t, tr, "a", event("6", "k")), "lane")
		rig.NoTrace(t, client, tr, before)
		if err := emitAll(t, tr, "a", event("7", "other"), event("8", "")); err != nil {
			t.Errorf("an event of another lane than the full one, and one without a lane: %v", err)
		}
		settle(t, tr, "4", "parked")
		wantFull(t, emitAll(t, tr, "a", event("9", "")), "parked")
		_, err := tr.Enqueue(redistest.Soon(t), "a", event("9", ""))
		wantFull(t, err, "parked")
		assert.NoError(t, emitAll(t, tr, "a"), "a transaction without events")
		assert.NoError(t, emitAll(t, tr, "a", event("8", "")), "a known event")
		settle(t, tr, "5", "parked")
		assert.Equal(t, gauge(t, tr, "parked"), 3, "parked events")
	})
}

func TestParkedBytesCloseAShard(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.ParkedBytes = 1200 })
		event := func(id string, size int) luatx.Event {
			return luatx.Event{ID: id, Body: bodyOf(size - 1)} // plus the mark of a given id
		}
		redistest.Must(t, emitAll(t, tr, "a", event("1", 600), event("2", 600), event("3", 10)))
		settle(t, tr, "1", "parked")
		assert.NoError(t, emitAll(t, tr, "a", event("4", 10)), "below the bound")
		settle(t, tr, "2", "parked")
		before := rig.Dump(t, client, tr)
		wantFull(t, emitAll(t, tr, "a", event("5", 10)), "parked bytes")
		_, err := tr.Enqueue(redistest.Soon(t), "a", event("5", 10))
		wantFull(t, err, "parked bytes")
		rig.NoTrace(t, client, tr, before)
		assert.NoError(t, emitAll(t, tr, "a", event("3", 10)), "a known event")
		assert.Equal(t, gauge(t, tr, "parked_bytes"), 1200, "parked bytes")
		settle(t, tr, "2", "sent")
		assert.NoError(t, emitAll(t, tr, "a", event("5", 10)), "after one was sent")
		assert.Equal(t, gauge(t, tr, "parked_bytes"), 600, "parked bytes")
	})
}

func TestTransactionIsRefusedBeforeItsFirstWriteIfTheOutboxIsFull(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	for what, c := range map[string]struct {
		change func(*luatx.Config)
		parked bool
	}{
		"events":       {func(c *luatx.Config) { c.OutboxCapacity = 1 }, false},
		"bytes":        {func(c *luatx.Config) { c.OutboxBytes = 100 }, false},
		"parked":       {func(c *luatx.Config) { c.ParkedCapacity = 1 }, true},
		"parked bytes": {func(c *luatx.Config) { c.ParkedBytes = 81 }, true},
	} {
		tr := rig.NewTransactor(t, client, c.change)
		redistest.Must(t, emitAll(t, tr, "a", luatx.Event{ID: "1", Body: bodyOf(80)}))
		if c.parked {
			settle(t, tr, "1", "parked")
		}
		before := writes(t, client)
		for _, events := range [][]luatx.Event{{{ID: "2", Body: bodyOf(80)}}, {{ID: "2", Body: bodyOf(80)}, {ID: "3", Body: bodyOf(80)}}} {
			wantFull(t, emitAll(t, tr, "a", events...), what)
			assert.Equal(t, writes(t, client)-before, 0, "%s: changes by %d events", what, len(events))
		}
	}
}

// writes returns the number of changes that a server has counted.
func writes(t *testing.T, client *redis.Client) int {
	t.Helper()
	text, err := client.InfoMap(redistest.Soon(t), "persistence").Result()
	redistest.Must(t, err)
	n, err := strconv.Atoi(text["Persistence"]["rdb_changes_since_last_save"])
	redistest.Must(t, err)
	return n
}

func TestKnownEventsLeaveTheLastPlaceToANewOne(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.OutboxCapacity = 3 })
		event := func(id string) luatx.Event { return luatx.Event{ID: id, Body: []byte("{}")} }
		redistest.Must(t, emitAll(t, tr, "a", event("1"), event("2")))
		wantFull(t, emitAll(t, tr, "a", event("1"), event("3"), event("4")), "events")
		redistest.Must(t, emitAll(t, tr, "a", event("1"), event("2"), event("3")))
		assert.Equal(t, gauge(t, tr, "events"), 3, "events")
	})
}

func TestDamagedCountsCountAsZeroAndStayWellFormed(t *testing.T) {
	t.Parallel()
	const idle, holds = 1 << 50, 1 << 51
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, c := range []struct {
			bytes, left string
			enqueued    int // bytes after the enqueue of one event of 3 bytes
			sent, gone  int // bytes and events that have left after it was sent
		}{
			{"", "", 3, 0, 1},
			{"many", "few", 3, 0, 1},
			{"1 2 3 4", "1.5", 3, 0, 1},
			{"-1", "-1", 2, 0, 0},
			{"20", "30", 23, 20, 31},
			{fmt.Sprint(idle + 20), "30", 23, 20, 31},
			{fmt.Sprint(holds + 20), "30", holds + 23, 20, 31}, // no event is parked
		} {
			ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
			key := shardOf(tr).Key("counts")
			redistest.Must(t, client.HSet(ctx, key, "bytes", c.bytes, "left", c.left).Err())
			redistest.Must(t, emitAll(t, tr, "a", luatx.Event{ID: "e", Body: []byte("{}")}))
			assert.Equal(t, client.HGet(ctx, key, "bytes").Val(), fmt.Sprint(c.enqueued), "%+v after a commit", c)
			settle(t, tr, "e", "sent")
			assert.Equal(t, client.HGet(ctx, key, "bytes").Val(), fmt.Sprint(c.sent), "%+v after a settlement", c)
			assert.Equal(t, client.HGet(ctx, key, "left").Val(), fmt.Sprint(c.gone), "left of %+v after a settlement", c)
		}
	})
}

func TestSizesDoNotFallBelowZero(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		key := shardOf(tr).Key("counts")
		redistest.Must(t, emitAll(t, tr, "a", luatx.Event{ID: "e", Body: []byte("{}")}))
		redistest.Must(t, client.HSet(ctx, key, "bytes", "1").Err())
		settle(t, tr, "e", "sent")
		assert.Equal(t, client.HGet(ctx, key, "bytes").Val(), "0", "the bytes")
	})
}
