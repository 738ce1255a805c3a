package outbox_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// parkedIn returns the parked events by id, without the fields of a lane.
func parkedIn(t testing.TB, store *outbox.Store) map[string]outbox.Event {
	t.Helper()
	found := map[string]outbox.Event{}
	for e, err := range store.Parked(redistest.Soon(t), outbox.Filter{}) {
		if err != nil && e.ID == "" {
			t.Fatal(err)
		}
		found[e.ID] = e
	}
	return found
}

// TestExportedEventsAreImportedUnchangedAndOnce imports them into another namespace, and after a discard.
func TestExportedEventsAreImportedUnchangedAndOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		bodies := map[string]string{
			"plain": `{"id":"plain","type":"t","source":"/s","destination":"d"}`, "spaced": `{ "id":"spaced" }`, "text": "no message, <b>&",
			"bytes": "\x00\xff\xfe", "number": "12", "unicode": "{\"id\":\"\u2028\"}", "escaped": `{"id":"\u003c"}`,
		}
		for id, body := range bodies {
			key := ""
			if id == "number" {
				key = "k"
			}
			y.enqueue(shard.Event{ID: id, Body: []byte(body), Key: key})
			y.settle("failed", "", "slow", "took too long", id)
			y.settle("parked", "", "odd", "no", id)
		}
		redistest.Must(t, client.HSet(redistest.Soon(t), keys{t, client, y.tr}.key("routes"), "spaced", "elsewhere").Err())
		y.emit("t", "", "", "erased")
		got, err := y.store.Erase(redistest.Soon(t), y.slot, "asked to", "erased")
		wantAnswers(t, got, err, outbox.Done)
		before := parkedIn(t, y.store)
		if len(before) != len(bodies)+1 || before["spaced"].Destination != "elsewhere" {
			t.Fatalf("%d are parked: %+v", len(before), before)
		}

		var file bytes.Buffer
		n, err := y.store.Export(redistest.Soon(t), &file, outbox.Filter{})
		if err != nil || n != len(before) || strings.Count(file.String(), "\n") != n {
			t.Fatalf("%d exported, %v: %s", n, err, &file)
		}
		if !strings.Contains(file.String(), `"body":{"id":"plain"`) {
			t.Errorf("a body in JSON is not written as it is: %s", &file)
		}

		other := newYard(t, client)
		for turn, want := range []outbox.ImportResult{{Read: n, Imported: n}, {Read: n, Skipped: map[outbox.Outcome]int{outbox.Known: n}}} {
			result, err := other.store.Import(redistest.Soon(t), bytes.NewReader(file.Bytes()))
			if want.Operation = result.Operation; want.Skipped == nil {
				want.Skipped = map[outbox.Outcome]int{}
			}
			if err != nil || !reflect.DeepEqual(result, want) {
				t.Errorf("import %d: %+v, %v", turn, result, err)
			}
			if after := parkedIn(t, other.store); !reflect.DeepEqual(after, before) {
				t.Errorf("imported\n%+v, want\n%+v", after, before)
			}
			other.overview()
		}
		if c := other.counts(); c.Totals.Imported != int64(n) || c.Parked != int64(n) {
			t.Errorf("%+v", c)
		}

		for id, body := range bodies {
			if e := before[id]; string(e.Body) != body || e.Attempts != 2 || len(e.History) != 2 || e.Class != "odd" || e.History[1].Class != "slow" {
				t.Errorf("%+v", e)
			}
		}
		discarded, err := y.store.Discard(redistest.Soon(t), y.slot, "moved", "plain", "text")
		wantAnswers(t, discarded, err, outbox.Done, outbox.Done)
		result, err := y.store.Import(redistest.Soon(t), &file)
		if err != nil || result.Imported != 2 || result.Skipped[outbox.Known] != n-2 {
			t.Errorf("%+v, %v", result, err)
		}
		if after := parkedIn(t, y.store); !reflect.DeepEqual(after, before) {
			t.Errorf("imported\n%+v, want\n%+v", after, before)
		}
		y.settle("sent", "", "", "", "plain")
		line := fmt.Sprintf(`{"slot":%d,"id":"plain","body":%s}`, y.slot, bodies["plain"])
		conflict := fmt.Sprintf(`{"slot":%d,"id":"plain","body":{"another":1}}`, y.slot)
		result, err = y.store.Import(redistest.Soon(t), strings.NewReader(line+conflict))
		if err != nil || result.Skipped[outbox.Known] != 1 || result.Skipped[outbox.Conflicting] != 1 {
			t.Errorf("a sent one: %+v, %v", result, err)
		}
	})
}

func TestImportNamesAnInvalidLineAndKeepsTheLinesBefore(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t), func(c *luatx.Config) { c.OutboxBytes, c.ParkedCapacity = 1000, 30 })
	good := func(id string) string { return fmt.Sprintf(`{"aggregate":"a","id":%q,"body":{"n":1}}`+"\n", id) }
	for i, c := range []struct{ line, want string }{
		{`{"id":"x","body":1}`, "neither a slot nor an aggregate"},
		{`{"id":"x","body":1,"slot":16384}`, "this keyspace has no shard in slot 16384"},
		{fmt.Sprintf(`{"id":"x","body":1,"slot":%d}`, y.slot+1), "this keyspace has no shard"},
		{fmt.Sprintf(`{"id":"x","body":1,"slot":%d,"aggregate":"a"}`, y.slot), "leave one out"},
		{fmt.Sprintf(`{"id":"x","body":1,"slot":%d,"tag":"x"}`, y.slot), `the tag "x" does not belong to slot`},
		{`{"aggregate":"a","body":1}`, "it has no id"},
		{`{"aggregate":"a","id":"x"}`, "it has no body"},
		{`{"aggregate":"a","id":"x","body":1,"body_base64":"aGVsbG8="}`, "two bodies"},
		{`{"aggregate":"a","id":"x","body_base64":"PWhlbGxv"}`, "begins with '='"},
		{`{"aggregate":"a","id":"x","erased":"abc"}`, "SHA-1"},
		{`{"aggregate":"a","id":"x","body":1,"attempts":-1}`, "-1 attempts"},
		{`{"aggregate":"a","id":"x","body":"` + strings.Repeat("x", 1000) + `"}`, "OutboxBytes allows 1000"},
		{`{"aggregate":"a","id":"x","body":`, "unexpected EOF"},
		{`}`, "invalid character"},
		{`{"aggregate":"a","id":7}`, "cannot unmarshal"},
	} {
		text := good(fmt.Sprint(i, "-1")) + good(fmt.Sprint(i, "-2")) + c.line + "\n" + good(fmt.Sprint(i, "-3"))
		result, err := y.store.Import(redistest.Soon(t), strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), "import: line 3: ") || !strings.Contains(err.Error(), c.want) || result.Imported != 2 {
			t.Errorf("%.80s: %+v, %v", c.line, result, err)
		}
	}
	if n := len(parkedIn(t, y.store)); n != 30 {
		t.Errorf("%d are parked", n)
	}
	if id := y.client.HGet(t.Context(), link.Of(y.tr).Scripts.Shard(y.slot).Key("inbox:a"), "id").Val(); !strings.Contains(id, y.tr.Config().Namespace) {
		t.Errorf("the shard belongs to %q after the import, want its namespace, so that no other keyspace uses it", id)
	}
	result, err := y.store.Import(redistest.Soon(t), strings.NewReader(good("one more")+good("0-1")))
	if err != nil || result.Skipped[outbox.Full] != 1 || result.Skipped[outbox.Known] != 1 {
		t.Errorf("beyond the capacity: %+v, %v", result, err)
	}
}

func TestExportAndImportReportErrorsOfReaderAndWriter(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t))
	y.emit("t", "", "", "1")
	y.park("odd", "1")
	if n, err := y.store.Export(redistest.Soon(t), broken{}, outbox.Filter{}); n != 0 || !errors.Is(err, errBroken) {
		t.Errorf("%d, %v", n, err)
	}
	if result, err := y.store.Import(redistest.Soon(t), broken{}); result.Read != 0 || !errors.Is(err, errBroken) {
		t.Errorf("%+v, %v", result, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := y.store.Export(ctx, broken{}, outbox.Filter{}); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v", n, err)
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }
func (broken) Read([]byte) (int, error)  { return 0, errBroken }

// TestReplayPublishesSentEventsOfTheTimeAndFilterAgain also checks that ids stay, and that events without stored bodies are
// skipped.
func TestReplayPublishesSentEventsOfTheTimeAndFilterAgain(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("sold", "", "", "1", "2", "3")
		y.emit("paid", "", "k", "4")
		settle(t, y.tr, y.slot, time.Hour, "sent", "3") // without a body
		y.settle("sent", "", "", "", "1", "2", "4")
		key := link.Of(y.tr).Scripts.Shard(y.slot).Key("sent")
		since := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		redistest.Must(t, client.ZAdd(redistest.Soon(t), key, redis.Z{Score: float64(since.UnixMilli() - 1), Member: "1"}, redis.Z{Score: float64(since.UnixMilli()), Member: "2"}).Err())

		replay := func(since time.Time, f outbox.Filter, opts outbox.ReplayOptions, matched, replayed, bare int) {
			t.Helper()
			r, err := y.store.Replay(redistest.Soon(t), since, f, opts)
			if err != nil || r.Matched != matched || r.Replayed != replayed || r.Skipped[outbox.NoBody] != bare {
				t.Errorf("%+v, %v", r, err)
			}
		}
		replay(time.Now().Add(time.Hour), outbox.Filter{}, outbox.ReplayOptions{}, 0, 0, 0)
		replay(since, outbox.Filter{}, outbox.ReplayOptions{DryRun: true}, 3, 0, 1)
		replay(since, outbox.Filter{IDs: []string{"1", "2"}}, outbox.ReplayOptions{DryRun: true}, 1, 0, 0)
		replay(since, outbox.Filter{Type: "sold"}, outbox.ReplayOptions{}, 1, 1, 0)
		y.want("2", outbox.Pending)
		y.want("1", outbox.Sent)
		c := y.counts()
		if c.Pending != 1 || c.Sent != 3 || c.Totals.Replayed != 1 || c.Bytes != int64(1+len(y.want("2", outbox.Pending).Body)) {
			t.Errorf("%+v", c)
		}
		replay(time.Time{}, outbox.Filter{}, outbox.ReplayOptions{Limit: 1}, 1, 1, 0)
		replay(time.Time{}, outbox.Filter{}, outbox.ReplayOptions{}, 2, 1, 1)
		if _, ids := y.claim(time.Hour); len(ids) != 3 {
			t.Errorf("due are %v", ids)
		}
		y.settle("sent", "", "", "", "1", "2", "4")
		wantCounts(t, y.store, outbox.Counts{Sent: 4})
		records := y.audit()
		if len(records) != 3 || records[0].Act != "replay" || !strings.HasSuffix(records[0].Why, `: type="sold"`) {
			t.Errorf("recorded %v", records)
		}
		for _, bad := range []outbox.ReplayOptions{{Limit: -1}, {Rate: -1}} {
			if _, err := y.store.Replay(redistest.Soon(t), since, outbox.Filter{}, bad); err == nil {
				t.Errorf("%+v is taken", bad)
			}
		}
	})
}

func TestReplayIgnoresEventsSentAfterItBegan(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", "1", "2", "3", "5")
		y.settle("sent", "", "", "", "1", "2", "5")
		scripts := link.Of(y.tr).Scripts
		home, began := scripts.Shard(y.slot), time.Now().Add(-time.Hour)
		redistest.Must(t, client.ZAdd(redistest.Soon(t), home.Key("sent"), redis.Z{Score: float64(began.UnixMilli()), Member: "1"}).Err(),
			client.ZRem(redistest.Soon(t), home.Key("sent"), "5").Err()) // until a repair
		letters, err := scripts.Replay(redistest.Soon(t), home, shard.Act{Operation: "op"}, began, []string{"1", "2", "3", "4", "5"})
		if err != nil || letters != "dnwuw" {
			t.Errorf("%q, %v", letters, err)
		}
	})
}

func TestReplayNeverExceedsTheCapacityOfTheOutbox(t *testing.T) {
	t.Parallel()
	const size = len(`{"specversion":"1.0","id":"1","source":"/s","type":"t","destination":"","data":1}`)
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for what, change := range map[string]func(*luatx.Config){
			"events":              func(c *luatx.Config) { c.OutboxCapacity = 3 },
			"bytes":               func(c *luatx.Config) { c.OutboxBytes = 4*size - 1 },
			"bytes that just fit": func(c *luatx.Config) { c.OutboxBytes = 3 * (size + 1) }, // the + of a given id counts
		} {
			y := newYard(t, client, change)
			y.emit("t", "", "", "1", "2", "3")
			y.settle("sent", "", "", "", "1", "2", "3")
			y.emit("t", "", "", "4")
			scripts := link.Of(y.tr).Scripts
			letters, err := scripts.Replay(redistest.Soon(t), scripts.Shard(y.slot), shard.Act{Operation: "op"}, time.Now().Add(time.Hour), []string{"1", "2", "3"})
			if err != nil || letters != "ddf" {
				t.Errorf("%s: %q, %v", what, letters, err)
			}
			r, err := y.store.Replay(redistest.Soon(t), time.Time{}, outbox.Filter{}, outbox.ReplayOptions{})
			if err != nil || r.Matched != 1 || r.Replayed != 0 || r.Stopped != outbox.StoppedFull || r.Skipped[outbox.Full] != 1 {
				t.Errorf("%s: %+v, %v", what, r, err)
			}
		}
	})
}

// TestAuditListsTheRecordsOfAllShardsByTime reads page by page, and checks operator, operation, reason and events.
func TestAuditListsTheRecordsOfAllShardsByTime(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		alice, bob := outbox.NewStore(tr).As("alice"), outbox.NewStore(tr).As("bob \"the\" builder")
		slots, before := map[int]int{}, time.Time{}
		for i := range 130 {
			aggregate, id := fmt.Sprint("a", i%20), fmt.Sprint("e", i)
			redistest.Must(t, emit(tr, aggregate, id))
			n := slotOf(t, tr, aggregate)
			slots[n]++
			settle(t, tr, n, time.Hour, "parked", id)
			got, err := alice.Discard(redistest.Soon(t), n, "reason "+id, id, "gone")
			wantAnswers(t, got, err, outbox.Done, outbox.Unknown)
			if i == 99 {
				acted := time.Now()
				redistest.Eventually(t, "a millisecond to pass", func() bool { return time.Since(acted) > 2*time.Millisecond })
				before = time.Now()
			}
		}
		i, last := 0, time.Time{}
		for r, err := range bob.Audit(redistest.Soon(t), time.Time{}) {
			redistest.Must(t, err)
			if r.At.Before(last) || r.Who != "alice" || r.Act != "discard" || r.Done != 1 || r.Asked != 2 || len(r.IDs) != 1 || r.Why != "reason "+r.IDs[0] || r.Call != 1 || r.Operation == "" || slots[r.Slot] == 0 {
				t.Errorf("%d: %+v", i, r)
			}
			i, last = i+1, r.At
		}
		if i != 130 {
			t.Errorf("%d records", i)
		}
		i = 0
		for r, err := range bob.Audit(redistest.Soon(t), before) {
			redistest.Must(t, err)
			if i++; !strings.Contains(r.String(), "alice discard 1 of 2 in slot") {
				t.Error(r)
			}
		}
		if i != 30 {
			t.Errorf("%d records since %v", i, before)
		}
		for _, err := range bob.Audit(redistest.Soon(t), time.Time{}) {
			redistest.Must(t, err)
			break
		}
	})
}

func TestCancelAndMoveOfAnOperatorAreRecorded(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
		hour := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		app := outbox.NewStore(tr).With(outbox.Config{At: func(*message.Message) (time.Time, error) { return hour, nil }})
		_, err := app.Enqueue(ctx, "a", sold("1"), sold("2"), sold("3"))
		redistest.Must(t, err)
		redistest.Must(t, emit(tr, "a", "now"))
		slot, alice := tr.Keyspace().Slots()[0], app.As("alice")
		did := func(want bool) func(bool, error) {
			return func(done bool, err error) {
				t.Helper()
				if done != want || err != nil {
					t.Errorf("%t, %v; want %t", done, err, want)
				}
			}
		}
		did(true)(app.Cancel(ctx, "a", "1")) // an application is no operator
		did(true)(alice.Cancel(ctx, "a", "2"))
		did(true)(alice.Move(ctx, "a", "3", hour.Add(time.Hour)))
		for _, id := range []string{"2", "now"} {
			did(false)(alice.Cancel(ctx, "a", id))
			did(false)(alice.Move(ctx, "a", id, hour))
		}
		if e, err := alice.Show(ctx, slot, "3"); err != nil || !e.At.Equal(hour.Add(time.Hour)) {
			t.Errorf("%+v, %v", e, err)
		}
		var records []string
		for r, err := range alice.Audit(ctx, time.Time{}) {
			redistest.Must(t, err)
			records = append(records, fmt.Sprint(r.Who, " ", r.Act, " ", r.Why, " ", r.IDs))
		}
		if want := []string{"alice cancel by id [2]", "alice move by id (to " + hour.Add(time.Hour).UTC().Format(time.RFC3339) + ") [3]"}; !slices.Equal(records, want) {
			t.Errorf("the audit has %q, want %q", records, want)
		}
	})
}

func TestBoundedListsHaveEveryEventOnceWhenTheyAreContinued(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		for i := range 400 { // of 20 aggregates in some shards
			aggregate, id := fmt.Sprint("a", i%20), fmt.Sprint("e", i)
			n := slotOf(t, tr, aggregate)
			_, err := outbox.NewStore(tr).Enqueue(redistest.Soon(t), aggregate, sold(id))
			redistest.Must(t, err)
			if i%4 > 0 {
				settle(t, tr, n, time.Hour, "parked", id)
			}
		}
		store := outbox.NewStore(tr).With(outbox.Config{OrderingKey: outbox.ByPartitionKey})
		for i := range 40 {
			aggregate, key := fmt.Sprint("a", i%20), fmt.Sprint("k", i)
			_, err := store.Enqueue(redistest.Soon(t), aggregate, sold(key+"-1", "partitionkey", key), sold(key+"-2", "partitionkey", key))
			redistest.Must(t, err)
			settle(t, tr, slotOf(t, tr, aggregate), time.Hour, "parked", key+"-1")
		}
		byTime := func(f *outbox.Filter, slot int, place shard.Place) {
			ms, _ := strconv.ParseInt(place.Score, 10, 64)
			link.Continue(f, slot, time.UnixMilli(ms), place.Member)
		}
		byPlace := func(f *outbox.Filter, slot int, place shard.Place) {
			place.Score = cmp.Or(place.Score, "-1")
			link.ContinueAt(f, slot, place)
		}
		list := func(state outbox.State) func(outbox.Filter) iter.Seq2[outbox.Event, error] {
			return func(f outbox.Filter) iter.Seq2[outbox.Event, error] {
				return store.List(redistest.Soon(t), state, outbox.ListOptions{Filter: f})
			}
		}
		for name, of := range map[string]struct {
			list   func(outbox.Filter) iter.Seq2[outbox.Event, error]
			resume func(*outbox.Filter, int, shard.Place)
			want   int
		}{
			"parked":  {func(f outbox.Filter) iter.Seq2[outbox.Event, error] { return store.Parked(redistest.Soon(t), f) }, byTime, 340},
			"blocked": {func(f outbox.Filter) iter.Seq2[outbox.Event, error] { return store.Blocked(redistest.Soon(t), f) }, byTime, 40},
			"pending": {list(outbox.Pending), byPlace, 100},
			"waiting": {list(outbox.Waiting), byPlace, 40},
		} {
			for _, f := range []outbox.Filter{{}, {Text: "refused"}, {Type: sold("").Type()}} {
				if f.Text != "" && (name == "pending" || name == "waiting") {
					continue // they have not failed
				}
				seen, pauses := map[string]int{}, 0
				for again := true; again; {
					again = false
					link.Bound(&f, 1)
					for e, err := range of.list(f) {
						if pause, ok := errors.AsType[*link.PauseError](err); ok {
							of.resume(&f, pause.Slot, pause.Place)
							again, pauses = true, pauses+1
							break
						}
						redistest.Must(t, err)
						seen[e.ID]++
					}
				}
				if len(seen) != of.want || pauses == 0 && name != "blocked" || slices.Max(slices.Collect(maps.Values(seen))) > 1 {
					t.Errorf("%s, %s: %d events in %d parts, want %d", name, f, len(seen), pauses, of.want)
				}
			}
		}
	})
}

// TestReplayAtARateReplaysFewEventsAtOnce also checks that the audit has the operation of the result.
func TestReplayAtARateReplaysFewEventsAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t))
	y.emit("t", "", "", "1", "2")
	y.settle("sent", "", "", "", "1", "2")
	r, err := y.store.Replay(redistest.Soon(t), time.Time{}, outbox.Filter{}, outbox.ReplayOptions{Rate: 19})
	if err != nil || r.Replayed != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	records := y.audit()
	if len(records) != 2 {
		t.Errorf("recorded %v", records)
	}
	for _, record := range records {
		if record.Done != 1 || record.Operation != r.Operation {
			t.Errorf("recorded %+v", record)
		}
	}
}

func TestImportNeverExceedsTheRoomForParkedEvents(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for what, change := range map[string]func(*luatx.Config){
			"events": func(c *luatx.Config) { c.ParkedCapacity = 2 },
			"bytes":  func(c *luatx.Config) { c.ParkedBytes = 2 * len(`+{"n":1}`) },
		} {
			y := newYard(t, client, change)
			var lines strings.Builder
			for i := range 4 {
				fmt.Fprintf(&lines, `{"aggregate":"a","id":"%d","at":"2999-01-01T00:00:00Z","body":{"n":1}}`, i)
			}
			for _, imported := range []int{2, 0} {
				r, err := y.store.Import(redistest.Soon(t), strings.NewReader(lines.String()))
				if err != nil || r.Imported != imported || r.Skipped[outbox.Full] != 2 {
					t.Errorf("%s: %+v, %v", what, r, err)
				}
			}
			if e, _ := y.store.Show(redistest.Soon(t), y.slot, "0"); e.State != outbox.Parked || e.At.Year() == 2999 {
				t.Errorf("parked in the future: %+v", e)
			}
		}
	})
}
