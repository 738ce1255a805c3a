package commit_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
)

// emitAll commits events in one transaction.
func emitAll(t testing.TB, tr *luatx.Transactor, aggregate string, events ...luatx.Event) error {
	t.Helper()
	_, err := tr.Transact(redistest.Soon(t), aggregate, func(tx *luatx.Tx) error {
		for _, event := range events {
			if err := tx.Emit(event); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// gauge reads a count of the shard of aggregate a.
func gauge(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, name string) int {
	t.Helper()
	n, err := client.HGet(redistest.Soon(t), shardOf(tr).Key("counts"), name).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return n
}

func shardOf(tr *luatx.Transactor) shard.Shard {
	tag, _ := tr.Keyspace().Tag("a")
	return link.Of(tr).Scripts.Shard(slot.OfTag(tag))
}

func wantFull(t testing.TB, err error, what string) {
	t.Helper()
	var full *luatx.OutboxFullError
	if !errors.As(err, &full) || full.What != what || !errors.Is(err, luatx.ErrOutboxFull) || full.Limit == 0 || !strings.Contains(err.Error(), strconv.Itoa(full.Limit)) {
		t.Errorf("%v, want that %s is full", err, what)
	}
}

// TestCapacityIsExact holds that however many commit at once, the outbox takes as much as it may and nothing beyond,
// of events, of bytes and of a lane.
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
				var next, taken atomic.Int64
				var committers sync.WaitGroup
				for range 64 {
					committers.Go(func() {
						for next.Load() < 300 {
							n := next.Add(1)
							_, err := tr.Transact(t.Context(), "a", func(tx *luatx.Tx) error {
								for i := range n%3 + 1 {
									event := luatx.Event{ID: fmt.Sprint(n, "-", i), Body: []byte("0123456789")}
									if what == "lane" {
										event.Key = "k"
									}
									if err := tx.Emit(event); err != nil {
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
					event := luatx.Event{ID: fmt.Sprint("last-", i), Body: []byte("0123456789")}
					if what == "lane" {
						event.Key = "k"
					}
					if _, err := tr.Enqueue(redistest.Soon(t), "a", event); err != nil {
						wantFull(t, err, what)
						break
					}
					taken.Add(1)
					client.Incr(t.Context(), committed)
				}
				entries := client.HLen(t.Context(), shardOf(tr).Key("entries")).Val()
				sum, _ := client.Get(t.Context(), committed).Int64()
				if entries != 100 || sum != 100 || taken.Load() != 100 || gauge(t, client, tr, "events") != 100 || gauge(t, client, tr, "bytes") != 1000 {
					t.Errorf("%d events, %d committed, %d reported, gauges %v", entries, sum, taken.Load(), client.HGetAll(t.Context(), shardOf(tr).Key("counts")).Val())
				}
				known := client.HKeys(t.Context(), shardOf(tr).Key("entries")).Val()[0]
				again := luatx.Event{ID: known, Body: []byte("0123456789")}
				if what == "lane" {
					again.Key = "k"
				}
				if err := emitAll(t, tr, "a", again); err != nil {
					t.Errorf("a known event needs no room: %v", err)
				}
			})
		})
	}
}

// TestParkedCapacity holds that a shard with too many parked events takes none until a person has acted, that what it
// holds may still be parked, and that a lane which stands still leaves the others their room.
func TestParkedCapacity(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.ParkedCapacity, c.LaneCapacity = 2, 3 })
		event := func(id, key string) luatx.Event { return luatx.Event{ID: id, Key: key, Body: []byte("{}")} }
		if err := emitAll(t, tr, "a", event("1", "k"), event("2", "k"), event("3", "k"), event("4", ""), event("5", "")); err != nil {
			t.Fatal(err)
		}
		park := func(id string) {
			t.Helper()
			settled, err := link.Of(tr).Scripts.Settle(redistest.Soon(t), shardOf(tr), shard.Settling{Attempts: 9, Retention: time.Hour},
				[]shard.Settlement{{ID: id, What: "parked", Class: "refused"}})
			if err != nil || settled.Done[0] != "parked" {
				t.Errorf("%s: %v, %v", id, settled, err)
			}
		}
		park("1")
		before := rig.Dump(t, client, tr)
		wantFull(t, emitAll(t, tr, "a", event("6", "k")), "lane")
		rig.NoTrace(t, client, tr, before)
		if err := emitAll(t, tr, "a", event("7", "other"), event("8", "")); err != nil {
			t.Errorf("beside a lane that stands still: %v", err)
		}
		park("4")
		wantFull(t, emitAll(t, tr, "a", event("9", "")), "parked")
		_, err := tr.Enqueue(redistest.Soon(t), "a", event("9", ""))
		wantFull(t, err, "parked")
		if err := emitAll(t, tr, "a"); err != nil {
			t.Errorf("a transaction without events: %v", err)
		}
		if err := emitAll(t, tr, "a", event("8", "")); err != nil {
			t.Errorf("a known event: %v", err)
		}
		park("5")
		if n := gauge(t, client, tr, "parked"); n != 3 {
			t.Errorf("%d parked", n)
		}
	})
}

func TestParkedBytesCloseAShard(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.ParkedBytes = 1000 })
		event := func(id string, size int) luatx.Event {
			return luatx.Event{ID: id, Body: bytes.Repeat([]byte("x"), size)}
		}
		if err := emitAll(t, tr, "a", event("1", 600), event("2", 600), event("3", 10)); err != nil {
			t.Fatal(err)
		}
		settle := func(id, what string) {
			t.Helper()
			settled, err := link.Of(tr).Scripts.Settle(redistest.Soon(t), shardOf(tr), shard.Settling{Attempts: 9, Retention: time.Hour},
				[]shard.Settlement{{ID: id, What: what, Class: "refused"}})
			if err != nil || settled.Done[0] != what {
				t.Errorf("%s: %v, %v", id, settled, err)
			}
		}
		settle("1", "parked")
		if err := emitAll(t, tr, "a", event("4", 10)); err != nil {
			t.Errorf("below the bound: %v", err)
		}
		settle("2", "parked")
		before := rig.Dump(t, client, tr)
		wantFull(t, emitAll(t, tr, "a", event("5", 10)), "parked bytes")
		_, err := tr.Enqueue(redistest.Soon(t), "a", event("5", 10))
		wantFull(t, err, "parked bytes")
		rig.NoTrace(t, client, tr, before)
		if err := emitAll(t, tr, "a", event("3", 10)); err != nil {
			t.Errorf("a known event: %v", err)
		}
		if n := gauge(t, client, tr, "parked_bytes"); n != 1200 {
			t.Errorf("%d parked bytes, want 1200", n)
		}
		settle("2", "sent")
		if err := emitAll(t, tr, "a", event("5", 10)); err != nil {
			t.Errorf("after one was sent: %v", err)
		}
		if n := gauge(t, client, tr, "parked_bytes"); n != 600 {
			t.Errorf("%d parked bytes, want 600", n)
		}
	})
}

// TestEventChecks holds what no transaction takes for an event.
func TestEventChecks(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.OutboxBytes = 100 })
	now := time.Now()
	for want, event := range map[string]luatx.Event{
		"no body":       {},
		`with '='`:      {Body: []byte("=x")},
		`with '!'`:      {Body: []byte("!x")},
		"Key or At":     {Body: []byte("x"), Key: "k", At: now},
		"256 bytes":     {Body: []byte("x"), Key: strings.Repeat("k", 257)},
		"UTF-8":         {Body: []byte("x"), Key: "\xff"},
		"1970 to 9999":  {Body: []byte("x"), At: time.UnixMilli(-1)},
		"years 1970":    {Body: []byte("x"), At: now.AddDate(9000, 0, 0)},
		"OutboxBytes, ": {Body: make([]byte, 101)},
	} {
		if err := emitAll(t, tr, "a", event); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		event.ID = "id"
		if _, err := tr.Enqueue(redistest.Soon(t), "a", event); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("enqueued: %v, want %s", err, want)
		}
	}
	if _, err := tr.Enqueue(redistest.Soon(t), "a", luatx.Event{Body: []byte("x")}); err == nil || !strings.Contains(err.Error(), "no id") {
		t.Errorf("enqueued without an id: %v", err)
	}
}
