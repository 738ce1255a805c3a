package main

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/cmd/luatx/internal/shop"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

func newObserver(t *testing.T, mode shop.Mode) (observer, *luatx.Transactor) {
	t.Helper()
	client, keys := redistest.Shared(t).Client(t), newLayout(newNamespace())
	transactor, err := luatx.New(client, keys.config())
	redistest.Must(t, err)
	return observer{client: client, keys: keys, mode: mode, store: outbox.NewStore(transactor)}, transactor
}

func wantQuiet(t *testing.T, o observer, want bool, when string) {
	t.Helper()
	if quiet, err := o.quiet(t.Context()); quiet != want || err != nil {
		t.Errorf("%s: quiet is %v, %v", when, quiet, err)
	}
}

func TestRunIsQuietOnceEventsArePublishedAndApplied(t *testing.T) {
	t.Parallel()
	for _, mode := range []shop.Mode{shop.Pipeline, shop.Scripted} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			o, transactor := newObserver(t, mode)
			ctx, tag := t.Context(), o.keys.space.Tags()[4]
			wantQuiet(t, o, true, "nothing was done")
			passes := func(key, group string) {
				id := o.client.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}}).Val()
				wantQuiet(t, o, false, key+" was written")
				o.client.XGroupCreate(ctx, key, group, "0")
				o.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: "c", Streams: []string{key, ">"}})
				wantQuiet(t, o, false, key+" was read")
				o.client.XAck(ctx, key, group, id)
				wantQuiet(t, o, true, key+" was acknowledged")
			}
			passes(o.keys.sold(tag), group)
			if mode == shop.Pipeline {
				passes(o.keys.outbox(tag), stream.OutboxGroup)
				return
			}
			_, err := transactor.Transact(ctx, "17850", func(tx *luatx.Tx) error { return tx.Emit(luatx.Event{Body: []byte("{}")}) })
			redistest.Must(t, err)
			wantQuiet(t, o, false, "an event is in the outbox")
		})
	}
}

func TestSettledCountsTheFinishedOrders(t *testing.T) {
	t.Parallel()
	o, _ := newObserver(t, shop.Scripted)
	ctx, orders := t.Context(), shop.BuiltIn(1)
	fed := newFeeder(o.client, o.keys, orders, 0)
	fed.limit.Store(int64(len(orders)))
	redistest.Must(t, fed.run(ctx))
	wantSettled := func(want int, when string) {
		t.Helper()
		if n, err := o.settled(ctx, fed); n != want || err != nil {
			t.Errorf("%s: %d are settled, %v; want %d", when, n, err, want)
		}
	}
	wantSettled(0, "there is no group")
	all := 0
	for _, key := range o.each(o.keys.orders) {
		o.client.XGroupCreate(ctx, key, group, "0")
		wantSettled(all, "nothing was read")
		read := o.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: "c", Streams: []string{key, ">"}, Count: 1000}).Val()
		wantSettled(all, "nothing was acknowledged")
		for _, entry := range read[0].Messages {
			o.client.XAck(ctx, key, group, entry.ID)
			all++
		}
		wantSettled(all, "a stream was acknowledged")
	}
	if all != len(orders) {
		t.Errorf("%d orders are in the streams, want %d", all, len(orders))
	}
}

func TestFeederKeepsToItsLimitAndRateUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	client, keys := redistest.Shared(t).Client(t), newLayout(newNamespace())
	length := func() (n int64) {
		for _, tag := range keys.space.Tags() {
			n += client.XLen(t.Context(), keys.orders(tag)).Val()
		}
		return n
	}
	ctx, cancel := context.WithCancel(t.Context())
	fed := newFeeder(client, keys, shop.BuiltIn(1), 2000)
	fed.limit.Store(70)
	start, done := time.Now(), make(chan error, 1)
	go func() { done <- fed.run(ctx) }()
	for _, limit := range []int64{70, 71, 200} {
		fed.limit.Store(limit)
		redistest.Eventually(t, "as many orders as the limit", func() bool { return length() == limit })
	}
	if took := time.Since(start); took < 99*time.Millisecond {
		t.Errorf("200 orders at 2000 a second took %s", took)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if n := length(); n != 200 {
		t.Errorf("%d orders are fed, beyond the limit", n)
	}
}

func TestObserverReadsTheValuesThatTheBooksWrote(t *testing.T) {
	t.Parallel()
	o, _ := newObserver(t, shop.Scripted)
	books, ctx := redisBooks{o.client, o.keys}, t.Context()
	for _, err := range []error{
		books.Book(ctx, "1", "17850", 250), books.Book(ctx, "2", "17850", -50), books.Book(ctx, "3", shop.Guest, 0),
		books.Take(ctx, "1", "85123A", 6), books.Take(ctx, "1", "85123A", 6), books.Take(ctx, "2", "85123a", -1),
	} {
		redistest.Must(t, err)
	}
	w, err := o.read(ctx)
	want := shop.Written{
		Spent:   map[string]int64{"17850": 200, shop.Guest: 0},
		Stock:   map[string]int64{"85123A": 12, "85123a": -1},
		Applied: map[string]int64{"1": 1, "2": 1, "3": 1},
		Sold:    map[string]int64{shop.SoldKey("1", "85123A"): 2, shop.SoldKey("2", "85123a"): 1},
	}
	if err != nil || !reflect.DeepEqual(w, want) {
		t.Errorf("read %+v, %v", w, err)
	}
	tag, err := o.keys.space.Tag("17850")
	if n := o.client.HGet(ctx, o.keys.bought(tag), "17850").Val(); n != "2" || err != nil {
		t.Errorf("the customer has %s orders, %v", n, err)
	}
}
