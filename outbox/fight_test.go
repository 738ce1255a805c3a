package outbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// shelves is a snapshot of a shard.
type shelves struct {
	entries, headers, counts, parkedBy, errors map[string]string
	pending, parked, sent, lanes               []string
}

func (y yard) snapshot(ctx context.Context) (s shelves, err error) {
	shard := link.Of(y.tr).Scripts.Shard(y.slot)
	pipe := y.client.TxPipeline()
	hashes := map[string]*redis.MapStringStringCmd{}
	for _, name := range []string{"entries", "headers", "counts", "parked:by", "errors"} {
		hashes[name] = pipe.HGetAll(ctx, shard.Key(name))
	}
	sets := map[string]*redis.StringSliceCmd{}
	for _, name := range []string{"pending", "parked", "sent", "lanes"} {
		sets[name] = pipe.ZRange(ctx, shard.Key(name), 0, -1)
	}
	_, err = pipe.Exec(ctx)
	return shelves{
		hashes["entries"].Val(), hashes["headers"].Val(), hashes["counts"].Val(), hashes["parked:by"].Val(), hashes["errors"].Val(),
		sets["pending"].Val(), sets["parked"].Val(), sets["sent"].Val(), sets["lanes"].Val(),
	}, err
}

func (s shelves) count(name string) int {
	c := shard.Counts{Entries: int64(len(s.entries)), Parked: int64(len(s.parked)), Sent: int64(len(s.sent))}
	c.Totals = shard.CountsOf(s.counts, c.Events())
	return int(rig.CountOf(c, name))
}

// wrong lists the contradictions: every event must be in one state, every lane must have a visible head, and the counts must be
// right.
func (s shelves) wrong() (list []string) {
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	in := map[string][]string{}
	for name, ids := range map[string][]string{"pending": s.pending, "parked": s.parked, "sent": s.sent} {
		for _, id := range ids {
			in[id] = append(in[id], name)
			if s.entries[id] == "" {
				say("%s of %s has no body", id, name)
			}
		}
	}
	heads, key := map[string]bool{}, ""
	for _, member := range s.lanes {
		k, rest, _ := strings.Cut(member, "\x00")
		if k != key {
			heads[rest[17:]] = true
		}
		key = k
	}
	by, events, size := map[string]int{}, 0, 0
	for id, body := range s.entries {
		state := strings.Join(in[id], "+")
		_, ordered := s.headers[id]
		switch {
		case state == "" && ordered && !heads[id]:
			state = "waiting"
		case ordered && state == "pending" && !heads[id]:
			say("%s is pending, and not the head of its lane", id)
		}
		if body[0] == '=' != (state == "sent") || body[0] == '!' && state != "parked" || strings.Contains(state, "+") || state == "" {
			say("%s is %q: %.50s", id, state, body)
		}
		if state == "pending" || state == "waiting" {
			events, size = events+1, size+len(body)
		}
		if state == "parked" {
			var msg struct{ Type, Destination string }
			_ = json.Unmarshal([]byte(strings.TrimPrefix(body, "+")), &msg)
			by["d:"+msg.Destination]++
			by["t:"+msg.Type]++
			by["c:"+strings.Fields(s.errors[id] + " - - -")[2]]++
		}
	}
	for name, n := range map[string]int{"events": events, "bytes": size, "parked": len(s.parked)} {
		if s.count(name) != n {
			say("%s are %d, and counted as %d", name, n, s.count(name))
		}
	}
	if came := s.count("enqueued") + s.count("imported") - s.count("discarded"); came != len(s.entries) {
		say("%d events came and did not go, and %d are here", came, len(s.entries))
	}
	counted := map[string]int{}
	for name, n := range s.parkedBy {
		counted[name], _ = strconv.Atoi(n)
	}
	if !maps.Equal(by, counted) {
		say("parked by %v, and counted as %v", by, counted)
	}
	return list
}

// fickle is a Publisher with random results, which it records.
type fickle struct {
	mu     sync.Mutex
	mended bool
	out    map[string]int
}

func (f *fickle) Publish(_ context.Context, events []*message.RawMessage) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([]error, len(events))
	for i, e := range events {
		switch n := rand.IntN(10); {
		case f.mended || n < 4:
			f.out[e.ID()]++
		case n < 7:
			errs[i] = message.Permanent(classified{"class_" + strconv.Itoa(n)})
		case n < 9:
			errs[i] = errors.New("not now")
		default:
			errs[i] = relay.Unavailable(errors.New("nobody there"))
		}
	}
	return errs
}

// TestNoEventIsLostOrInTwoStatesBetweenOperatorsAndRelays runs until each of these has happened: relays publish, fail and park,
// and operators re-arm, discard, erase, replay, export and import the same events.
func TestNoEventIsLostOrInTwoStatesBetweenOperatorsAndRelays(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		market := &fickle{out: map[string]int{}}
		policy := relay.LaneBlocks
		if rand.IntN(2) == 0 {
			policy = relay.LaneContinues
		}
		cfg := relay.Config{
			NoInline: true, Lease: 200 * time.Millisecond, Attempts: 3, BackoffBase: time.Millisecond, BackoffCap: 10 * time.Millisecond,
			PauseCap: 5 * time.Millisecond, OnPark: policy, KeepSentBodies: true,
		}
		for range 2 {
			publish(t, y.tr, market, cfg)
		}
		ctx, cancel := context.WithCancel(redistest.Soon(t))
		defer cancel()
		var workers sync.WaitGroup
		for worker := range 2 {
			workers.Go(func() { y.commit(ctx, worker) })
		}
		for range 3 {
			workers.Go(func() { y.operate(ctx) })
		}
		begun, missing := time.Now(), []string{"anything"}
		for !t.Failed() && (len(missing) > 0 || time.Since(begun) < time.Second) {
			if ctx.Err() != nil {
				t.Fatalf("too little happened, namely %v", missing)
			}
			s, err := y.snapshot(redistest.Soon(t))
			redistest.Must(t, err)
			for _, wrong := range s.wrong() {
				t.Error(wrong)
			}
			missing = slices.DeleteFunc([]string{"enqueued", "sent", "failed", "parkings", "discarded", "erased", "replayed", "imported"},
				func(name string) bool { return s.count(name) > 0 })
		}
		cancel()
		workers.Wait()

		market.mu.Lock()
		market.mended = true
		market.mu.Unlock()
		redistest.Eventually(t, "all to be sent that can be", func() bool {
			_, err := y.store.RearmAll(redistest.Soon(t), outbox.Filter{}, outbox.RearmOptions{MaxParkedAgain: -1})
			redistest.Must(t, err)
			c := y.counts()
			return c.Pending == 0 && c.Waiting == 0 && c.Leased == 0
		})
		s, err := y.snapshot(redistest.Soon(t))
		redistest.Must(t, err)
		for _, wrong := range s.wrong() {
			t.Error(wrong)
		}
		for id, body := range s.entries {
			if body[0] == '=' && market.out[id] == 0 {
				t.Errorf("%s counts as sent, and was not published", id)
			}
		}
	})
}

func (y yard) commit(ctx context.Context, worker int) {
	for i := 0; ctx.Err() == nil && i < 150; i++ {
		_, err := y.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			for part := range 3 {
				id := fmt.Sprintf("%d-%d-%d", worker, i, part)
				event := luatx.Event{ID: id, Body: fmt.Appendf(nil, `{"id":%q,"type":"t%d","source":"/s","destination":"d%d"}`, id, part, i%2)}
				if part > 0 {
					event.Key = strconv.Itoa(i % 7)
				}
				if err := tx.Emit(event); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			y.t.Error(err)
		}
	}
}

// operate performs the operations on random events.
func (y yard) operate(ctx context.Context) {
	for ctx.Err() == nil {
		var ids []string
		state := []outbox.State{outbox.Parked, outbox.Parked, outbox.Pending, outbox.Waiting, outbox.Sent}[rand.IntN(5)]
		for e, err := range y.store.List(ctx, state, outbox.ListOptions{}) {
			if err == nil && rand.IntN(8) == 0 {
				ids = append(ids, e.ID)
			}
			if len(ids) == 5 {
				break
			}
		}
		slices.Sort(ids)
		var err error
		switch rand.IntN(9) {
		case 0, 1:
			_, err = y.store.Rearm(ctx, y.slot, ids...)
		case 2, 3:
			_, err = y.store.RearmAll(ctx, outbox.Filter{Type: "t1"}, outbox.RearmOptions{Limit: 20, Canary: 3, CanaryWait: 50 * time.Millisecond, MaxParkedAgain: 5})
		case 4:
			_, err = y.store.Erase(ctx, y.slot, "asked to", ids[:min(1, len(ids))]...)
		case 5:
			_, err = y.store.Replay(ctx, time.Time{}, outbox.Filter{}, outbox.ReplayOptions{Limit: 3})
		case 6, 7:
			var file bytes.Buffer
			if _, err = y.store.Export(ctx, &file, outbox.Filter{IDs: ids}); err == nil {
				if _, err = y.store.Discard(ctx, y.slot, "moved", ids...); err == nil && rand.IntN(2) == 0 {
					_, err = y.store.Import(ctx, &file)
				}
			}
		case 8:
			_, err = y.store.Discard(ctx, y.slot, "not wanted", ids...)
		}
		if err != nil && ctx.Err() == nil {
			y.t.Error(err)
		}
	}
}
