package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/outbox"
)

// large returns the JSON of an event whose body is stored outside of the script.
func large(id string) []byte {
	return fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"big","destination":"d","data":%q}`, id, strings.Repeat("x", 40<<10))
}

func (y yard) emitLarge(ids ...string) error {
	_, err := y.tr.Transact(redistest.Soon(y.t), "a", func(tx *luatx.Tx) error {
		for _, id := range ids {
			if err := tx.Emit(luatx.Event{ID: id, Body: large(id)}); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// largeBodies returns how many large bodies are permanent, and how many expire. It checks that the index has the permanent ones.
func (y yard) largeBodies() (kept, expiring int) {
	y.t.Helper()
	ctx, home := redistest.Soon(y.t), link.Of(y.tr).Scripts.Shard(y.slot)
	all, err := redistest.Dump(ctx, y.client, home.Key("body:")+"*")
	redistest.Must(y.t, err)
	index, err := y.client.HGetAll(ctx, home.Key("bodies")).Result()
	redistest.Must(y.t, err)
	for key := range all.Keys {
		left, err := y.client.PTTL(ctx, key).Result()
		redistest.Must(y.t, err)
		if left > 0 {
			expiring++
			continue
		}
		kept++
		if index[strings.TrimPrefix(key, home.Key("body:"))] == "" {
			y.t.Errorf("the index lacks %s", key)
		}
	}
	if len(index) != kept {
		y.t.Errorf("the index has %d bodies, want %d: %v", len(index), kept, index)
	}
	return kept, expiring
}

func (y yard) wantLargeBodies(want int) {
	y.t.Helper()
	if kept, expiring := y.largeBodies(); kept != want || expiring != 0 {
		y.t.Errorf("%d large bodies and %d that expire, want %d and none", kept, expiring, want)
	}
}

func TestLargeBodyIsPublishedCompletelyAndThenRemoved(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		redistest.Must(t, y.emitLarge("1", "2"))
		y.wantLargeBodies(2)
		if stored := (keys{t, client, y.tr}).hash("entries")["1"]; len(stored) > 200 || !strings.HasPrefix(stored, "+~") {
			t.Errorf("entries has %d bytes, %.20q", len(stored), stored)
		}
		if got, want := y.counts().Bytes, int64(len(large("1"))+len(large("2"))+2); got != want {
			t.Errorf("%d bytes are counted, want %d", got, want)
		}
		batch, err := y.store.Claim(redistest.Soon(t), y.slot, outbox.Work{})
		redistest.Must(t, err)
		for _, e := range batch.Events {
			want, _ := outbox.Decode(large(e.ID))
			if e.Err != nil || !bytes.Equal(e.Message.Data, want.Data) {
				t.Errorf("%s was claimed with %d bytes, %v", e.ID, len(e.Message.Data), e.Err)
			}
		}
		done, err := y.store.Sent(redistest.Soon(t), y.slot, outbox.Work{}, "1", "2")
		wantDone(t, done, err, 1, 1)
		y.wantLargeBodies(0)
		if counts := y.counts(); counts.Bytes != 0 || counts.Sent != 2 {
			t.Errorf("counts %+v", counts)
		}
		redistest.Must(t, y.emitLarge("1")) // it is remembered, with its digest
		if kept, _ := y.largeBodies(); kept != 0 {
			t.Errorf("%d large bodies of an event that was sent before", kept)
		}
	})
}

func TestEventWithAnotherLargeBodyIsRejected(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		redistest.Must(t, y.emitLarge("1"))
		before := (keys{t, client, y.tr}).hash("entries")
		_, err := y.tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			return tx.Emit(luatx.Event{ID: "1", Body: bytes.Replace(large("1"), []byte("xxx"), []byte("yyy"), 1)})
		})
		assert.ErrorContains(t, err, "exists with another body", "the same id")
		if after := (keys{t, client, y.tr}).hash("entries"); !maps.Equal(before, after) {
			t.Errorf("entries %v, before %v", after, before)
		}
		if kept, expiring := y.largeBodies(); kept != 1 || expiring != 1 {
			t.Errorf("%d large bodies and %d that expire, want one each", kept, expiring)
		}
	})
}

func TestLargeBodyOfAFailedTransactionIsDeleted(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		list, err := y.tr.Keyspace().Key("a", "list")
		redistest.Must(t, err)
		redistest.Must(t, client.RPush(redistest.Soon(t), list, 1).Err())
		_, err = y.tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			tx.Pipeline().Incr(redistest.Soon(t), list)
			return tx.Emit(luatx.Event{ID: "1", Body: large("1")})
		})
		if _, ok := errors.AsType[*luatx.CommandError](err); !ok {
			t.Errorf("error %v", err)
		}
		y.wantLargeBodies(0)
	})
}

func TestFunctionThatRunsAgainCommitsTheLargeBodyOfItsLastRun(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y, ctx := newYard(t, client), redistest.Soon(t)
		key, err := y.tr.Keyspace().Key("a", "k")
		redistest.Must(t, err)
		body := func(run int) []byte {
			return bytes.Replace(large("1"), []byte("xxx"), fmt.Appendf(nil, "run%d", run), 1)
		}
		runs := 0
		_, err = y.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			runs++
			if err := tx.Read().Get(ctx, key).Err(); err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			if runs == 1 { // the first run conflicts
				redistest.Must(t, client.Incr(ctx, key).Err())
			}
			return tx.Emit(luatx.Event{ID: "1", Body: body(runs)})
		})
		redistest.Must(t, err)
		batch, err := y.store.Claim(ctx, y.slot, outbox.Work{})
		redistest.Must(t, err)
		want, err := outbox.Decode(body(2))
		redistest.Must(t, err)
		if runs != 2 || len(batch.Events) != 1 || !bytes.Equal(batch.Events[0].Message.Data, want.Data) {
			t.Errorf("%d runs, claimed %d events, and the body is not that of the second run", runs, len(batch.Events))
		}
	})
}

// without drops the commands that store large bodies, like a server that evicts them at once.
type without struct{}

func (without) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (without) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (without) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return next(ctx, slices.DeleteFunc(slices.Clone(cmds), func(cmd redis.Cmder) bool {
			return cmd.Name() == "set" && strings.Contains(fmt.Sprint(cmd.Args()[1]), "body:")
		}))
	}
}

func TestEvictedLargeBodyIsSentAgainInsideTheScript(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		client.AddHook(without{})
		y := newYard(t, client)
		redistest.Must(t, y.emitLarge("1"))
		y.wantLargeBodies(0)
		if stored := (keys{t, client, y.tr}).hash("entries")["1"]; stored != "+"+string(large("1")) {
			t.Errorf("entries has %.40q", stored)
		}
	})
}

func TestLargeBodyOfAKnownEventStaysOutsideTheScript(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	y := newYard(t, redistest.Client(t, proxy.Addr()))
	redistest.Must(t, y.emitLarge("1"))
	var most atomic.Int64 // bytes of an argument
	proxy.On(func(cmd []string) respproxy.Action {
		if strings.EqualFold(cmd[0], "EVALSHA") {
			for _, arg := range cmd {
				most.Store(max(most.Load(), int64(len(arg))))
			}
		}
		return respproxy.Pass()
	})
	redistest.Must(t, y.emitLarge("1"))
	if most.Load() == 0 || most.Load() > 1000 {
		t.Errorf("a script got an argument of %d bytes", most.Load())
	}
}

func TestErasedLargeBodyOfASentEventIsDeletedThoughItsIDWasDerived(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, y, id := redistest.Soon(t), newYard(t, client), ""
		_, err := y.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			id = tx.EventID()
			return tx.Emit(luatx.Event{Data: strings.Repeat("x", 40<<10)})
		})
		redistest.Must(t, err)
		done, err := y.store.Sent(ctx, y.slot, outbox.Work{KeepSentBodies: true}, id)
		wantDone(t, done, err, 1)
		y.wantLargeBodies(1)
		answers, err := y.store.Erase(ctx, y.slot, "test", id)
		wantAnswers(t, answers, err, outbox.Done)
		y.wantLargeBodies(0)
	})
}

func TestErasedEventWithALargeBodyIsStillTheSameEvent(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		redistest.Must(t, y.emitLarge("parked", "pending"))
		y.park("odd", "parked")
		answers, err := y.store.Erase(redistest.Soon(t), y.slot, "asked to", "parked", "pending")
		wantAnswers(t, answers, err, outbox.Done, outbox.Done)
		redistest.Must(t, y.emitLarge("parked", "pending"))
		if c := y.counts(); c.Totals.Duplicate != 2 || c.Pending != 0 || c.Parked != 2 {
			t.Errorf("the same events again: %+v", c)
		}
	})
}

// TestLateCopyOfAStoredBodySetsNoExpiry sends the request that a retry on another connection may leave behind.
func TestLateCopyOfAStoredBodySetsNoExpiry(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		sent := &recorder{}
		client.AddHook(sent)
		redistest.Must(t, y.emitLarge("1"))
		if len(sent.sets) == 0 { // a second one follows if the server did not know the script
			t.Fatal("no SET")
		}
		if err := client.Do(redistest.Soon(t), sent.sets[0]...).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("the copy was answered with %v", err)
		}
		y.wantLargeBodies(1)
	})
}

// recorder records the arguments of SET.
type recorder struct{ sets [][]any }

func (*recorder) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "set" && strings.Contains(fmt.Sprint(cmd.Args()[1]), "body:") {
				r.sets = append(r.sets, cmd.Args())
			}
		}
		return next(ctx, cmds)
	}
}

func TestOperationsWorkOnEventsWithLargeBodies(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, y := redistest.Soon(t), newYard(t, client)
		size := int64(len(large("1")) + 1)
		redistest.Must(t, y.emitLarge("1", "2", "3", "4"))
		y.park("no", "1", "2", "3")
		if counts := y.counts(); counts.Bytes != size || counts.Parked != 3 {
			t.Errorf("counts %+v, want %d bytes", counts, size)
		}
		if got := y.overview(); got.ByType["big"] != 3 || got.ByDestination["d"] != 3 {
			t.Errorf("overview %+v", got)
		}
		if e := y.want("1", outbox.Parked); !bytes.Equal(e.Body, large("1")) {
			t.Errorf("the parked event shows %d bytes", len(e.Body))
		}
		var exported bytes.Buffer
		n, err := y.store.Export(ctx, &exported, outbox.Filter{})
		if err != nil || n != 3 || exported.Len() < 3*int(size) {
			t.Errorf("exported %d events in %d bytes, %v", n, exported.Len(), err)
		}
		answers, err := y.store.Rearm(ctx, y.slot, "1")
		wantAnswers(t, answers, err, outbox.Done)
		answers, err = y.store.Discard(ctx, y.slot, "test", "2")
		wantAnswers(t, answers, err, outbox.Done)
		y.wantLargeBodies(3)
		answers, err = y.store.Erase(ctx, y.slot, "test", "3")
		wantAnswers(t, answers, err, outbox.Done)
		y.wantLargeBodies(2)
		if counts := y.counts(); counts.Bytes != 2*size || counts.Pending != 2 {
			t.Errorf("counts %+v, want %d bytes", counts, 2*size)
		}
		done, err := y.store.Sent(ctx, y.slot, outbox.Work{KeepSentBodies: true}, "1")
		wantDone(t, done, err, 1)
		y.wantLargeBodies(2)
		if e := y.want("1", outbox.Sent); !bytes.Equal(e.Body, large("1")) {
			t.Errorf("the sent event shows %d bytes", len(e.Body))
		}
		replayed, err := y.store.Replay(ctx, time.Time{}, outbox.Filter{}, outbox.ReplayOptions{})
		if err != nil || replayed.Replayed != 1 || y.counts().Bytes != 2*size {
			t.Errorf("replayed %+v, %v; %d bytes", replayed, err, y.counts().Bytes)
		}
		done, err = y.store.Sent(ctx, y.slot, outbox.Work{KeepSentBodies: true}, "1", "4")
		wantDone(t, done, err, 1, 1)
		answers, err = y.store.Erase(ctx, y.slot, "test", "1")
		wantAnswers(t, answers, err, outbox.Done)
		y.wantLargeBodies(1)
		_, err = y.store.Sent(ctx, y.slot, outbox.Work{SentRetention: time.Nanosecond}, "other") // 4 is forgotten
		redistest.Must(t, err)
		y.wantLargeBodies(0)
	})
}

func TestCancelAndDiscardDeleteTheLargeBody(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, y := redistest.Soon(t), newYard(t, client)
		_, err := y.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			return tx.Emit(luatx.Event{ID: "1", Body: large("1"), At: time.Now().Add(time.Hour)})
		})
		redistest.Must(t, err)
		y.wantLargeBodies(1)
		if done, err := y.store.Cancel(ctx, "a", "1"); !done || err != nil {
			t.Errorf("cancelled %v, %v", done, err)
		}
		y.wantLargeBodies(0)
		redistest.Must(t, y.emitLarge("2"))
		answers, err := y.store.Change(ctx, y.slot, outbox.Change{Act: outbox.ActDiscard, Reason: "why"}, "2")
		wantAnswers(t, answers, err, outbox.Done)
		y.wantLargeBodies(0)
		if counts := y.counts(); counts.Bytes != 0 || counts.Pending != 0 {
			t.Errorf("counts %+v", counts)
		}
	})
}

func TestLargeBodiesOfALaneArePublishedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, y := redistest.Soon(t), newYard(t, client)
		_, err := y.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			return errors.Join(tx.Emit(luatx.Event{ID: "1", Body: large("1"), Key: "k"}), tx.Emit(luatx.Event{ID: "2", Body: large("2"), Key: "k"}))
		})
		redistest.Must(t, err)
		home, scripts := link.Of(y.tr).Scripts.Shard(y.slot), link.Of(y.tr).Scripts
		how := shard.Settling{Attempts: 10, Retention: time.Hour, Lease: time.Hour}
		settled, err := scripts.Settle(ctx, home, how, []shard.Settlement{{ID: "1", What: "sent", Body: large("1"), Given: true}})
		redistest.Must(t, err)
		if p := settled.Promoted; len(p) != 1 || !bytes.Equal(p[0].Body, large("2")) {
			t.Errorf("promoted %d events", len(p))
		}
		y.wantLargeBodies(1)
	})
}

// TestBlockedYieldsEachLargeEventOfAClassOnce lists more bodies than a page has room for.
func TestBlockedYieldsEachLargeEventOfAClassOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		classes := map[string][]string{}
		for i, id := range numbered(90) {
			_, err := y.tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
				return errors.Join(tx.Emit(luatx.Event{ID: id, Body: large(id), Key: id}), tx.Emit(luatx.Event{ID: "behind " + id, Body: []byte("{}"), Key: id}))
			})
			redistest.Must(t, err)
			class := []string{"odd", "even", "even"}[i%3]
			classes[class] = append(classes[class], id)
		}
		for class, ids := range classes {
			y.settle("parked", "", class, "no", ids...)
		}
		for class, ids := range classes {
			want := make([]string, len(ids))
			for i, id := range ids {
				want[i] = id + ":1"
			}
			y.same(y.blockedOf(outbox.Filter{Class: class}), want...)
			y.same(listed(t, y.store.Parked(redistest.Soon(t), outbox.Filter{IDs: ids})), ids...)
		}
	})
}
