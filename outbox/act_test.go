package outbox_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/outbox"
)

// yard is a shard of one partition with the helpers of the tests.
type yard struct {
	t      testing.TB
	tr     *luatx.Transactor
	client redis.UniversalClient
	store  *outbox.Store // with an operator
	slot   int
}

func newYard(t testing.TB, client redis.UniversalClient, change ...func(*luatx.Config)) yard {
	t.Helper()
	tr := newTransactor(t, client, append([]func(*luatx.Config){onePartition}, change...)...)
	return yard{t, tr, client, outbox.NewStore(tr).As("alice"), slotOf(t, tr, "a")}
}

// enqueue stores an event with any body.
func (y yard) enqueue(event shard.Event) {
	y.t.Helper()
	inside := link.Of(y.tr)
	_, err := inside.Commits.Enqueue(redistest.Soon(y.t), inside.Scripts.Shard(y.slot), []shard.Event{event})
	redistest.Must(y.t, err)
}

// emit commits events of one type, destination and ordering key.
func (y yard) emit(typ, destination, key string, ids ...string) {
	y.t.Helper()
	_, err := y.tr.Transact(redistest.Soon(y.t), "a", func(tx *luatx.Tx) error {
		for _, id := range ids {
			body := fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":%q,"destination":%q,"data":1}`, id, typ, destination)
			if err := tx.Emit(luatx.Event{ID: id, Body: body, Key: key}); err != nil {
				return err
			}
		}
		return nil
	})
	redistest.Must(y.t, err)
}

// claim claims the due events and returns the lease and the ids.
func (y yard) claim(lease time.Duration) (string, []string) {
	y.t.Helper()
	claim, err := link.Of(y.tr).Scripts.Claim(redistest.Soon(y.t), link.Of(y.tr).Scripts.Shard(y.slot), shard.Claiming{Limit: 1000, Lease: lease, Attempts: 100})
	redistest.Must(y.t, err)
	ids := make([]string, len(claim.Events))
	for i, e := range claim.Events {
		ids[i] = e.ID
	}
	return claim.Lease, ids
}

// settle settles events under a lease and ignores the results.
func (y yard) settle(what, lease, class, text string, ids ...string) {
	y.t.Helper()
	batch := make([]shard.Settlement, len(ids))
	for i, id := range ids {
		batch[i] = shard.Settlement{ID: id, What: what, Lease: lease, Number: 0.9, Class: class, Error: text}
	}
	how := shard.Settling{Attempts: 100, Base: time.Hour, Cap: time.Hour, Retention: time.Hour, KeepBody: true}
	_, err := link.Of(y.tr).Scripts.Settle(redistest.Soon(y.t), link.Of(y.tr).Scripts.Shard(y.slot), how, batch)
	redistest.Must(y.t, err)
}

// park parks pending events without a lease.
func (y yard) park(class string, ids ...string) {
	y.t.Helper()
	y.settle("parked", "", class, "no: "+class, ids...)
	for _, id := range ids {
		y.want(id, outbox.Parked)
	}
}

func (y yard) want(id string, state outbox.State) outbox.Event {
	y.t.Helper()
	e, err := y.store.Show(redistest.Soon(y.t), y.slot, id)
	if err != nil || e.State != state {
		y.t.Errorf("%s is %q, want %q; %v", id, e.State, state, err)
	}
	return e
}

func (y yard) counts() outbox.Counts {
	y.t.Helper()
	c, err := y.store.Counts(redistest.Soon(y.t))
	redistest.Must(y.t, err)
	return c
}

// overview compares the sums of parked events with the events.
func (y yard) overview() outbox.Overview {
	y.t.Helper()
	want := outbox.Overview{ByDestination: map[string]int64{}, ByType: map[string]int64{}, ByClass: map[string]int64{}}
	for _, e := range parkedIn(y.t, y.store) {
		destination, typ := "", ""
		if e.Message != nil {
			destination, typ = e.Message.Destination(), e.Message.Type()
		}
		want.Total++
		want.ByDestination[destination]++
		want.ByType[typ]++
		want.ByClass[cmp.Or(e.Class, "-")]++
	}
	got, err := y.store.Overview(redistest.Soon(y.t))
	redistest.Must(y.t, err)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		y.t.Errorf("overview %+v, want %+v", got, want)
	}
	return got
}

func (y yard) audit() []outbox.Record {
	y.t.Helper()
	var records []outbox.Record
	for r, err := range y.store.Audit(redistest.Soon(y.t), time.Time{}) {
		redistest.Must(y.t, err)
		records = append(records, r)
	}
	return records
}

func wantAnswers(t testing.TB, got outbox.Answers, err error, want ...outbox.Outcome) {
	t.Helper()
	var list []outbox.Outcome
	for _, a := range got {
		list = append(list, a.Outcome)
	}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("answers %v, want %v; %v", list, want, err)
	}
}

func TestRearmMakesOnlyParkedEventsDueAtOnceAndKeepsHistory(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", "1", "2", "3", "4")
		y.park("odd", "1", "2")
		y.settle("sent", "", "", "", "3")
		for _, bad := range []int{-1, 16384} {
			if _, err := y.store.Rearm(redistest.Soon(t), bad, "1"); err == nil || !strings.Contains(err.Error(), "use 0 to 16383") {
				t.Errorf("slot %d: %v", bad, err)
			}
		}
		got, err := y.store.Rearm(redistest.Soon(t), y.slot)
		wantAnswers(t, got, err)
		got, err = y.store.Rearm(redistest.Soon(t), (y.slot+1)%16384, "1", "2")
		wantAnswers(t, got, err, outbox.Unknown, outbox.Unknown)
		got, err = y.store.Rearm(redistest.Soon(t), y.slot, "3", "4", "never heard of")
		wantAnswers(t, got, err, outbox.WrongState, outbox.WrongState, outbox.Unknown)
		wantCounts(t, y.store, outbox.Counts{Pending: 1, Parked: 2, Sent: 1})
		if records := y.audit(); len(records) != 0 {
			t.Errorf("nothing was done, and recorded: %v", records)
		}
		got, err = y.store.Rearm(redistest.Soon(t), y.slot, "1", "4", "1")
		wantAnswers(t, got, err, outbox.Done, outbox.WrongState, outbox.WrongState)
		wantCounts(t, y.store, outbox.Counts{Pending: 2, Parked: 1, Sent: 1})
		e := y.want("1", outbox.Pending)
		if e.Attempts != 0 || e.Class != "odd" || e.Error != "no: odd" || len(e.History) != 1 || e.History[0].Attempt != 1 {
			t.Errorf("re-armed: %+v", e)
		}
		if _, ids := y.claim(time.Hour); !slices.Equal(ids, []string{"4", "1"}) {
			t.Errorf("due are %v", ids)
		}
		if e := y.want("1", outbox.Leased); e.Attempts != 1 {
			t.Errorf("claimed after a re-arm: %+v", e)
		}
		y.overview()
	})
}

func TestOperationsNeedAnOperatorAndAReason(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t))
	nobody, ctx := outbox.NewStore(y.tr), redistest.Soon(t)
	acts := map[string]func(s *outbox.Store) error{
		"rearm": func(s *outbox.Store) error { _, err := s.Rearm(ctx, y.slot, "1"); return err },
		"all": func(s *outbox.Store) error {
			_, err := s.RearmAll(ctx, outbox.Filter{}, outbox.RearmOptions{})
			return err
		},
		"discard": func(s *outbox.Store) error { _, err := s.Discard(ctx, y.slot, "why", "1"); return err },
		"erase":   func(s *outbox.Store) error { _, err := s.Erase(ctx, y.slot, "why", "1"); return err },
		"replay": func(s *outbox.Store) error {
			_, err := s.Replay(ctx, time.Now(), outbox.Filter{}, outbox.ReplayOptions{})
			return err
		},
		"import": func(s *outbox.Store) error { _, err := s.Import(ctx, strings.NewReader("")); return err },
	}
	for name, act := range acts {
		if err := act(nobody); err == nil || !strings.Contains(err.Error(), `store.As("alice")`) {
			t.Errorf("%s by nobody: %v", name, err)
		}
		if err := act(nobody.As(strings.Repeat("x", 257))); err == nil || !strings.Contains(err.Error(), "at most 256") {
			t.Errorf("%s by a long name: %v", name, err)
		}
		for _, who := range []string{"alice", strings.Repeat("x", 256)} {
			if err := act(nobody.As(who)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, act := range map[string]func(reason string) error{
		"discard": func(reason string) error { _, err := y.store.Discard(ctx, y.slot, reason, "1"); return err },
		"erase":   func(reason string) error { _, err := y.store.Erase(ctx, y.slot, reason, "1"); return err },
	} {
		if err := act(""); err == nil || !strings.Contains(err.Error(), "reason is empty") {
			t.Errorf("%s without a reason: %v", name, err)
		}
		if err := act(strings.Repeat("x", 1025)); err == nil || !strings.Contains(err.Error(), "at most 1024") {
			t.Errorf("%s with a long reason: %v", name, err)
		}
		redistest.Must(t, act(strings.Repeat("x", 1024)))
	}
}

func TestDiscardedEventIsGoneAndItsLaneContinues(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "d", "", "plain", "stays", "sent")
		y.emit("t", "d", "k", "head", "second", "third")
		y.settle("sent", "", "", "", "sent")
		y.park("odd", "plain", "head")
		redistest.Must(t, client.HSet(redistest.Soon(t), keys{t, client, y.tr}.key("routes"), "plain", "elsewhere").Err())
		if c := y.counts(); c.Waiting != 2 || c.Parked != 2 || c.Pending != 1 {
			t.Errorf("%+v", c)
		}
		got, err := y.store.Discard(redistest.Soon(t), y.slot, "double", "plain", "stays", "sent", "head", "second", "gone", "plain")
		wantAnswers(t, got, err, outbox.Done, outbox.WrongState, outbox.WrongState, outbox.Done, outbox.WrongState, outbox.Unknown, outbox.Unknown)
		if _, err := y.store.Show(redistest.Soon(t), y.slot, "plain"); !errors.Is(err, outbox.ErrNotFound) {
			t.Errorf("discarded and there: %v", err)
		}
		y.want("second", outbox.Pending)
		y.want("third", outbox.Waiting)
		if c := y.counts(); c.Totals.Discarded != 2 || c.Parked != 0 || c.Pending != 2 || c.Waiting != 1 {
			t.Errorf("%+v", c)
		}
		if view := y.overview(); view.Total != 0 {
			t.Errorf("%+v", view)
		}
		for _, name := range []string{"errors", "attempts", "headers", "routes", "parked:by"} {
			fields := client.HKeys(redistest.Soon(t), link.Of(y.tr).Scripts.Shard(y.slot).Key(name)).Val()
			if slices.Contains(fields, "plain") || slices.Contains(fields, "head") || name == "parked:by" && len(fields) > 0 {
				t.Errorf("%s still holds %v", name, fields)
			}
		}
		if _, ids := y.claim(time.Hour); !slices.Contains(ids, "second") || slices.Contains(ids, "third") {
			t.Errorf("due are %v", ids)
		}
	})
}

func TestDiscardKeepsASentEventThatIsParkedToo(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y, ctx := newYard(t, client), redistest.Soon(t)
		y.emit("t", "d", "", "1")
		y.settle("sent", "", "", "", "1")
		redistest.Must(t, client.ZAdd(ctx, keys{t, client, y.tr}.key("parked"), redis.Z{Score: 1, Member: "1"}).Err())
		got, err := y.store.Discard(ctx, y.slot, "double", "1")
		wantAnswers(t, got, err, outbox.WrongState)
		if !client.HExists(ctx, keys{t, client, y.tr}.key("entries"), "1").Val() {
			t.Error("a sent event is forgotten")
		}
	})
}

func TestErasedBodyIsInNoKeyAndItsEventStays(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		const secret = "Erika-Mustermann"
		y.emit("t", secret, "", "parked", "pending", "sent", "leased")
		y.emit("t", secret, "k", "head", "waiting", "last")
		y.park("odd", "parked")
		y.settle("failed", "", "", secret+" is not known", "pending")
		y.settle("sent", "", "", "", "sent")
		lease, ids := y.claim(time.Hour)
		if !slices.Contains(ids, "leased") || !slices.Contains(ids, "head") {
			t.Fatalf("claimed %v", ids)
		}
		y.settle("back", lease, "", "", "head")
		all := []string{"parked", "pending", "sent", "leased", "head", "waiting", "never heard of"}
		got, err := y.store.Erase(redistest.Soon(t), y.slot, "asked to", all...)
		wantAnswers(t, got, err, outbox.Done, outbox.Done, outbox.Done, outbox.InUse, outbox.Done, outbox.Done, outbox.Unknown)
		y.settle("sent", lease, "", "", "leased")
		got, err = y.store.Erase(redistest.Soon(t), y.slot, "asked to", "leased", "last", "parked", "sent")
		wantAnswers(t, got, err, outbox.Done, outbox.Done, outbox.NoBody, outbox.NoBody)

		state, err := redistest.Dump(redistest.Soon(t), client, "*"+y.tr.Config().Namespace+"*")
		redistest.Must(t, err)
		if text := fmt.Sprintf("%+v", state); strings.Contains(text, secret) || !strings.Contains(text, "waiting") {
			t.Errorf("the body is still there: %s", text)
		}
		for _, id := range []string{"parked", "pending", "head", "waiting", "last"} {
			attempt := map[string]int{"parked": 1, "pending": 1}[id]
			if e := y.want(id, outbox.Parked); !e.Erased || e.Class != "erased" || e.Error != "asked to" || e.Message != nil || len(e.History) != 1 || e.History[0].Attempt != attempt {
				t.Errorf("erased: %+v", e)
			}
		}
		y.want("sent", outbox.Sent)
		if c := y.counts(); c.Parked != 5 || c.Sent != 2 || c.Pending != 0 || c.Waiting != 0 || c.Bytes != 0 {
			t.Errorf("%+v", c)
		}
		if view := y.overview(); view.ByClass["erased"] != 5 || view.ByDestination[""] != 5 {
			t.Errorf("%+v", view)
		}
		got, err = y.store.Rearm(redistest.Soon(t), y.slot, "parked", "waiting")
		wantAnswers(t, got, err, outbox.NoBody, outbox.NoBody)
		y.emitAgain(secret, "parked")
		got, err = y.store.Discard(redistest.Soon(t), y.slot, "done with it", "parked", "waiting", "head")
		wantAnswers(t, got, err, outbox.Done, outbox.Done, outbox.Done)
		y.overview()
	})
}

// emitAgain commits a known event, which is a duplicate and changes nothing.
func (y yard) emitAgain(destination, id string) {
	y.t.Helper()
	before := y.counts()
	y.emit("t", destination, "", id)
	after := y.counts()
	if before.Totals.Duplicate++; after != before {
		y.t.Errorf("the same event again: %+v, want %+v", after, before)
	}
}

// TestEventWithoutABodyDoesNotBlockItsLane parks the event before, or not.
func TestEventWithoutABodyDoesNotBlockItsLane(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "k", "1", "2", "3", "4")
		y.park("odd", "1")
		y.want("2", outbox.Waiting)
		for i, id := range []string{"1", "2", "3"} {
			got, err := y.store.Erase(redistest.Soon(t), y.slot, "asked to", id)
			wantAnswers(t, got, err, outbox.Done)
			y.want(fmt.Sprint(i+2), outbox.Pending)
		}
		if _, ids := y.claim(time.Hour); !slices.Equal(ids, []string{"4"}) {
			t.Errorf("due are %v", ids)
		}
	})
}

// TestRepeatedOperationReturnsTheFirstResultAndIsNotPerformedTwice claims and parks the event between the two copies.
func TestRepeatedOperationReturnsTheFirstResultAndIsNotPerformedTwice(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", "1", "2")
		y.park("odd", "1")
		scripts, act := link.Of(y.tr).Scripts, shard.Act{Operation: "op", Call: 7, Who: "bob", Why: "why"}
		send := func() {
			t.Helper()
			letters, err := scripts.Rearm(redistest.Soon(t), scripts.Shard(y.slot), act, time.Time{}, "", []string{"1", "2"})
			if err != nil || letters != "dw" {
				t.Errorf("answered %q, %v", letters, err)
			}
		}
		send()
		lease, _ := y.claim(time.Hour)
		y.settle("parked", lease, "odd", "no", "1")
		send()
		y.want("1", outbox.Parked)
		act.Call++
		y.settle("sent", lease, "", "", "2")
		send()
		y.want("1", outbox.Pending)
		if records := y.audit(); len(records) != 2 || records[0].Call != 7 || records[1].Call != 8 {
			t.Errorf("recorded %v", records)
		}
	})
}

// TestRepeatedOperationAfterACutReplyIsNotPerformedTwice uses a proxy that cuts the reply.
func TestRepeatedOperationAfterACutReplyIsNotPerformedTwice(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	y := newYard(t, redistest.Client(t, proxy.Addr()))
	y.emit("t", "", "", "1", "2")
	y.park("odd", "1", "2")
	got, err := y.store.Discard(redistest.Soon(t), y.slot, "loads the script", "none")
	wantAnswers(t, got, err, outbox.Unknown)
	proxy.Next(1, respproxy.Command("EVALSHA"), respproxy.CutReply())
	got, err = y.store.Discard(redistest.Soon(t), y.slot, "double", "1", "2", "3")
	wantAnswers(t, got, err, outbox.Done, outbox.Done, outbox.Unknown)
	if records := y.audit(); len(records) != 1 || records[0].Done != 2 || records[0].Asked != 3 {
		t.Errorf("recorded %v", records)
	}
}

func TestSentEventIsADuplicateEvenIfTheRelayDidNotReportItsBody(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", "1", "2")
		scripts := link.Of(y.tr).Scripts
		body := []byte(`{"specversion":"1.0","id":"2","source":"/s","type":"t","destination":"","data":1}`)
		settled, err := scripts.Settle(redistest.Soon(t), scripts.Shard(y.slot), shard.Settling{Attempts: 1, Retention: time.Hour},
			[]shard.Settlement{{ID: "1", What: "sent"}, {ID: "2", What: "sent", Body: body}})
		if err != nil || !slices.Equal(settled.Done, []string{"sent", "sent"}) {
			t.Fatalf("%+v, %v", settled, err)
		}
		y.emit("t", "", "", "1", "2")
		y.want("1", outbox.Sent)
		y.want("2", outbox.Sent)
	})
}

func TestPageOfAClassCountsAllEventsThatItHasRead(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t))
	y.emit("t", "bank", "", "1", "2", "3", "4")
	y.park("odd", "1", "2")
	y.park("even", "3", "4")
	inside := link.Of(y.tr)
	list := func(class string, after shard.Place) (ids string, page shard.Page) {
		page, err := inside.Scripts.List(redistest.Soon(t), inside.Scripts.Shard(y.slot), shard.Listing{Of: "parked", Limit: 3, Class: class, After: after})
		redistest.Must(t, err)
		for _, row := range page.Rows {
			ids += row.ID
		}
		return ids, page
	}
	for class, want := range map[string][2]string{"": {"123", "4"}, "odd": {"12", ""}, "even": {"3", "4"}, "none": {"", ""}} {
		first, page := list(class, shard.Place{})
		last, end := list(class, page.Next)
		if got := [2]string{first, last}; got != want || page.Read != 3 || end.Read != 1 || !page.More || end.More {
			t.Errorf("class %q: %q, want %q; %d and %d events were read", class, got, want, page.Read, end.Read)
		}
	}
}

func TestOperationOnManyEventsRunsAScriptPerThousand(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	y := newYard(t, redistest.Client(t, proxy.Addr()))
	discard := func(ids []string) outbox.Answers {
		answers, err := y.store.Discard(redistest.Soon(t), y.slot, "gone", ids...)
		redistest.Must(t, err)
		return answers
	}
	discard([]string{"0"}) // loads the script
	var scripts atomic.Int32
	proxy.On(func(cmd []string) respproxy.Action {
		if strings.EqualFold(cmd[0], "evalsha") {
			scripts.Add(1)
		}
		return respproxy.Pass()
	})
	ids := make([]string, 1001)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	for n, want := range map[int]int32{1000: 1, 1001: 2} {
		scripts.Store(0)
		if answers := discard(ids[:n]); len(answers) != n || answers[n-1] != (outbox.Answer{ID: ids[n-1], Outcome: outbox.Unknown}) {
			t.Errorf("%d answers for %d events, the last is %v", len(answers), n, answers[len(answers)-1])
		}
		if got := scripts.Load(); got != want {
			t.Errorf("%d scripts for %d events, want %d", got, n, want)
		}
	}
}
