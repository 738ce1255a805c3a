package outbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/outbox"
)

func wantRefused(t *testing.T, op string, slot int, err error) {
	t.Helper()
	var failed *outbox.StorageError
	if !errors.As(err, &failed) || failed.Op != op || failed.Slot != slot {
		t.Errorf("%s: %#v: %v", op, failed, err)
	}
}

// lastOf returns the last error of a list.
func lastOf[T any](list func(func(T, error) bool)) (err error) {
	for _, err = range list {
	}
	return err
}

func TestListsEndWithTheErrorOfTheShardThatTheyHaveFound(t *testing.T) {
	t.Parallel()
	client, owner := rig.NewUser(t, "+@all")
	y := newYard(t, client)
	y.everyState()
	y.emit("t", "", "j", "blocks", "blocked")
	y.park("odd", "blocks")
	rig.Grant(t, owner, "-evalsha", "-eval")
	ctx := redistest.Soon(t)
	oldest, err := y.store.Oldest(ctx)
	wantRefused(t, "list due events", y.slot, err)
	if oldest != 0 {
		t.Errorf("%v was returned beside an error", oldest)
	}
	wantRefused(t, "list parked events", y.slot, lastOf(y.store.Parked(ctx, outbox.Filter{})))
	wantRefused(t, "list blocking events", y.slot, lastOf(y.store.Blocked(ctx, outbox.Filter{})))
	wantRefused(t, "show", y.slot, lastOf(y.store.Parked(ctx, outbox.Filter{IDs: []string{"parked"}})))
	wantRefused(t, "list waiting events", y.slot, lastOf(y.store.List(ctx, outbox.Waiting, outbox.ListOptions{})))
	wantRefused(t, "list expired events", y.slot, second(y.store.FindPending(ctx, 10)))
}

// TestOperationsEndWithTheErrorOfAStep makes the audit unwritable, which only the step of an operation needs.
func TestOperationsEndWithTheErrorOfAStep(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	y, ctx := newYard(t, client), redistest.Soon(t)
	y.emit("t", "", "", numbered(600)...)
	y.emit("t", "", "", "parked", "sent")
	y.park("odd", "parked")
	y.settle("sent", "", "", "", "sent")
	y.schedule("later", time.Now().Add(time.Hour))
	redistest.Must(t, client.Set(ctx, keys{t, client, y.tr}.key("audit"), "of another type", 0).Err())

	changed, err := y.store.ChangeAll(ctx, outbox.Pending, outbox.Filter{}, outbox.Change{Act: outbox.ActPark, Reason: "why"}, outbox.ChangeOptions{})
	wantRefused(t, "park", y.slot, err)
	if changed.Matched != 500 || changed.Done != 0 {
		t.Errorf("%+v", changed)
	}
	_, err = y.store.RearmAll(ctx, outbox.Filter{}, outbox.RearmOptions{})
	wantRefused(t, "re-arm", y.slot, err)
	_, err = y.store.Replay(ctx, time.Time{}, outbox.Filter{}, outbox.ReplayOptions{})
	wantRefused(t, "replay", y.slot, err)
	wantRefused(t, "cancel", y.slot, second(y.store.Cancel(ctx, "a", "later")))
	wantRefused(t, "move", y.slot, second(y.store.Move(ctx, "a", "later", time.Now())))
	wantRefused(t, "audit", y.slot, lastOf(y.store.Audit(ctx, time.Time{})))
}

func TestInvalidCallsOfSingleEventsAreErrors(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	y, ctx := newYard(t, client), redistest.Soon(t)
	long := y.store.As(strings.Repeat("x", 257))
	for name, err := range map[string]error{
		"cancel without an aggregate": second(y.store.Cancel(ctx, "", "1")),
		"move without an aggregate":   second(y.store.Move(ctx, "", "1", time.Now())),
		"move without an id":          second(y.store.Move(ctx, "a", "", time.Now())),
		"cancel by a long name":       second(long.Cancel(ctx, "a", "1")),
		"move by a long name":         second(long.Move(ctx, "a", "1", time.Now())),
		"show of a slot that is none": second(y.store.Show(ctx, 16384, "1")),
	} {
		if err == nil || errors.Is(err, outbox.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAuditListsRecordsOfOneMillisecondOnceOverItsPages(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	server.SetTime(time.Now().Truncate(time.Second))
	y := newYard(t, client)
	ids := numbered(120)
	y.emit("t", "", "", ids...)
	y.settle("parked", "", "odd", "no", ids...)
	for _, id := range ids {
		got, err := y.store.Discard(redistest.Soon(t), y.slot, "why", id)
		wantAnswers(t, got, err, outbox.Done)
	}
	var got []string
	for _, r := range y.audit() {
		got = append(got, r.IDs...)
	}
	y.same(got, ids...)

	var failures []error
	for r, err := range y.store.Audit(redistest.Soon(t), time.Time{}) {
		if err != nil {
			failures = append(failures, err)
		} else if r.IDs[0] == ids[10] {
			redistest.Must(t, client.Set(redistest.Soon(t), keys{t, client, y.tr}.key("audit"), "of another type", 0).Err())
		}
	}
	if len(failures) != 1 {
		t.Errorf("the second page fails with %v", failures)
	}
}

func TestImportKeepsFiveFailuresInOneLineEach(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	y := newYard(t, client)
	failures := []string{`{"class":"two words","text":"a\nb\rc","attempt":7,"at":"2024-01-01T00:00:00Z"}`}
	for range 6 {
		failures = append(failures, `{"class":"","text":"x"}`)
	}
	const digest = "da39a3ee5e6b4b0d3255bfef95601890afd80709"
	line := fmt.Sprintf(`{"aggregate":"a","id":"1","body":{"id":"1","source":"/s","type":"t"},"at":"1970-01-01T00:00:00Z","history":[%s]}`, strings.Join(failures, ","))
	result, err := y.store.Import(redistest.Soon(t), strings.NewReader(line))
	if err != nil || result.Imported != 1 {
		t.Fatalf("%+v, %v", result, err)
	}
	e := y.want("1", outbox.Parked)
	if len(e.History) != 5 || e.Class != "two_words" || e.Error != "a b c" || e.History[0].Attempt != 7 || e.History[4].Text != "x" || !e.At.Equal(time.UnixMilli(0)) {
		t.Errorf("%+v", e)
	}
	for line, want := range map[string]string{
		`"body":1,"erased":"` + digest + `"`: "SHA-1",
		`"body":1,"body_base64":"aA=="`:      "two bodies",
		`"body_base64":"PQ=="`:               "begins with '='",
	} {
		if _, err := y.store.Import(redistest.Soon(t), strings.NewReader(`{"aggregate":"a","id":"2",`+line+`}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestImportWritesUpToAHundredLinesOrAMegabyteAtOnce(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	for name, c := range map[string]struct {
		lines, size int
		want        string
	}{"lines": {250, 1, "[100 100 50]"}, "bytes": {5, 400_000, "[2 2 1]"}, "bytes to the limit": {4, 1 << 19, "[2 2]"}} {
		y := newYard(t, client)
		var text strings.Builder
		for i := range c.lines {
			fmt.Fprintf(&text, `{"aggregate":"a","id":"%d","body":"%s"}`, i, strings.Repeat("x", max(0, c.size-2)))
		}
		result, err := y.store.Import(redistest.Soon(t), strings.NewReader(text.String()))
		if err != nil || result.Imported != c.lines {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
		var done []int
		for _, r := range y.audit() {
			done = append(done, r.Done)
		}
		if fmt.Sprint(done) != c.want {
			t.Errorf("%s: %v at once, want %s", name, done, c.want)
		}
	}
}

func TestExportEndsAtAnEventWhoseIDOrKeyIsNoText(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	for _, event := range []shard.Event{{ID: "\xff", Body: []byte("{}")}, {ID: "1", Key: "\xff", Body: []byte("{}")}} {
		y := newYard(t, client)
		y.enqueue(event)
		y.settle("parked", "", "odd", "no", event.ID)
		if n, err := y.store.Export(redistest.Soon(t), new(bytes.Buffer), outbox.Filter{}); n != 0 || err == nil || !strings.Contains(err.Error(), "not UTF-8") {
			t.Errorf("%q: %d, %v", event.ID, n, err)
		}
	}
}

func TestIndexWithoutEventsCountsNoneAsWaiting(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	y := newYard(t, client)
	redistest.Must(t, client.ZAdd(redistest.Soon(t), link.Of(y.tr).Scripts.Shard(y.slot).Key("parked"), redis.Z{Score: 1, Member: "gone"}).Err())
	wantCounts(t, y.store, outbox.Counts{Parked: 1})
}
