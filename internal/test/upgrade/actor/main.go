// Command actor does what a service does, with the public API alone, so that it can be built at two versions: it writes
// data of every kind, finishes what an actor has written, or works beside another actor or alone. It answers with a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

const (
	transactions = 40 // of write
	accounts     = 4
	rounds       = 400 // of beside

	years = 10 * 365 * 24 * time.Hour // how long what was written is remembered
)

// report is what an actor has seen.
type report struct {
	First     int            `json:"first"`     // transactions that it committed
	Replies   map[string]any `json:"replies"`   // balance told by each transaction, its own or a kept one
	Published map[string]int `json:"published"` // how often it published an event
	Parked    []string       `json:"parked"`    // parked events, before it re-armed them
	Fired     []string       `json:"fired"`     // timers
	Findings  []string       `json:"findings"`  // of repair, changing nothing
	Left      outbox.Counts  `json:"left"`
}

type actor struct {
	client redis.UniversalClient
	tr     *luatx.Transactor
	store  *outbox.Store
	timers *expiry.Store

	mu  sync.Mutex
	saw report
}

func main() {
	addrs := flag.String("addrs", "", "comma-separated `addresses` of Redis; several addresses select a cluster")
	namespace := flag.String("namespace", "", "`namespace` of the data")
	flag.Parse()
	if err := run(strings.Split(*addrs, ","), *namespace, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "actor:", err)
		os.Exit(1)
	}
}

func run(addrs []string, namespace, part string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
	defer func() { _ = client.Close() }()
	quiet := slog.New(slog.DiscardHandler)
	tr, err := luatx.New(client, luatx.Config{
		Namespace: namespace, Keyspace: luatx.Partitions(4).WithPrefix(namespace), Retention: years, Logger: quiet,
	})
	if err != nil {
		return err
	}
	timers, err := expiry.New(tr, expiry.Config{})
	if err != nil {
		return err
	}
	a := &actor{client: client, tr: tr, store: outbox.NewStore(tr), timers: timers}
	a.saw.Published, a.saw.Replies = map[string]int{}, map[string]any{}
	parts := map[string]func(context.Context) error{"write": a.write, "finish": a.finish, "alone": a.alone, "beside": a.beside}
	do, ok := parts[part]
	if !ok {
		return fmt.Errorf("unknown part %q; use one of %q", part, slices.Sorted(maps.Keys(parts)))
	}
	if err := do(ctx); err != nil {
		return err
	}
	if a.saw.Left, err = a.store.Counts(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(&a.saw)
}

// transact is one transfer: a balance, and an event, of which every fourth will be refused, is later, or has a lane.
func (a *actor) transact(ctx context.Context, prefix string, i int) error {
	id := fmt.Sprintf("%s-%d", prefix, i)
	account := fmt.Sprintf("account-%d", i%accounts)
	var balance *redis.IntCmd
	result, err := a.tr.Transact(ctx, account, func(tx *luatx.Tx) error {
		key, err := tx.Key("balance", account)
		if err != nil {
			return err
		}
		balance = tx.Pipeline().IncrBy(ctx, key, int64(i))
		body, err := outbox.Encode(message.New(id, message.Attributes{
			"id": "event-" + id, "source": "/upgrade", "type": []string{"plain", "refused", "later", "laned"}[i/accounts%4],
		}, nil))
		if err != nil {
			return err
		}
		event := luatx.Event{ID: "event-" + id, Body: body}
		switch i / accounts % 4 {
		case 2:
			event.At = time.Now().Add(years)
		case 3:
			event.Key = account
		}
		return tx.Emit(event)
	}, luatx.WithID(id), luatx.KeepReplies())
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	a.saw.Replies[id] = balance.Val()
	if result.Outcome == luatx.Committed {
		a.saw.First++
	}
	return nil
}

func (a *actor) write(ctx context.Context) error {
	for i := range transactions / 2 {
		if err := a.transact(ctx, "message", i); err != nil {
			return err
		}
	}
	// Half of it is published or parked, then comes more, of which some is left under the lease of a relay that died.
	if err := a.publish(ctx, true); err != nil {
		return err
	}
	for i := transactions / 2; i < transactions; i++ {
		if err := a.transact(ctx, "message", i); err != nil {
			return err
		}
	}
	for _, slot := range a.tr.Keyspace().Slots() {
		if _, err := a.store.Claim(ctx, slot, outbox.Work{Limit: 1, Lease: time.Second}); err != nil {
			return err
		}
	}
	for i := range 8 {
		if err := a.timers.Record(ctx, fmt.Sprintf("timer-%d", i), time.Now().Add(time.Duration(i%2)*years)); err != nil {
			return err
		}
	}
	_, err := a.timers.Revoke(ctx, "timer-6", nil)
	return err
}

// finish hears every message again, which must change nothing, publishes what is there, and lets the timers fire.
func (a *actor) finish(ctx context.Context) error {
	if err := a.findings(ctx); err != nil {
		return err
	}
	for i := range transactions {
		if err := a.transact(ctx, "message", i); err != nil {
			return err
		}
	}
	for event, err := range a.store.Parked(ctx, outbox.Filter{}) {
		if err != nil {
			return err
		}
		a.saw.Parked = append(a.saw.Parked, event.ID)
	}
	slices.Sort(a.saw.Parked)
	if _, err := a.store.As("upgrade").RearmAll(ctx, outbox.Filter{}, outbox.RearmOptions{}); err != nil {
		return err
	}
	if err := a.fire(ctx); err != nil {
		return err
	}
	if err := a.publish(ctx, false); err != nil {
		return err
	}
	return a.findings(ctx)
}

// meet waits until two actors have called it for the nth time.
func (a *actor) meet(ctx context.Context, n int64) error {
	place := a.tr.Config().Namespace + "-met"
	if err := a.client.Incr(ctx, place).Err(); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		calls, err := a.client.Get(ctx, place).Int64()
		return calls >= 2*n, err
	})
}

// beside commits what another actor commits at the same time, under the same ids, and publishes beside it. They meet again and
// again: else the one that is ahead would commit all.
func (a *actor) beside(ctx context.Context) error {
	return a.both(ctx, func(i int) error {
		if i%20 > 0 {
			return nil
		}
		return a.meet(ctx, int64(i/20+1))
	})
}

func (a *actor) alone(ctx context.Context) error { return a.both(ctx, func(int) error { return nil }) }

func (a *actor) both(ctx context.Context, before func(i int) error) error {
	return during(ctx, func(ctx context.Context) error { return a.relay(ctx, false) }, func() error {
		for i := range rounds {
			if err := before(i); err != nil {
				return err
			}
			if err := a.transact(ctx, "both", i); err != nil {
				return err
			}
		}
		return a.drained(ctx)
	})
}
