package luatx

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

func unconnected(t *testing.T) *Transactor {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	t.Cleanup(func() { _ = client.Close() })
	tr, err := New(client, Config{Namespace: "shop", OutboxCapacity: 10, ParkedCapacity: 20})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func begun(tr *Transactor) *Tx {
	d := newDelivery(nil)
	return tr.begin("tag", "a", &d)
}

func TestEachStateOfACommitHasItsError(t *testing.T) {
	t.Parallel()
	tr := unconnected(t)
	for state, want := range map[commit.State]any{
		commit.Committed: nil, commit.Replayed: nil, commit.Duplicate: nil,
		commit.Expired: ErrExpired, commit.Tombstoned: ErrExpired, commit.Absent: ErrExpired,
		commit.Fenced: ErrFenced, commit.Conflict: ErrConflict, commit.Full: ErrOutboxFull, commit.Identity: ErrKeyspace,
		commit.Early: &message.EarlyError{}, commit.Epoch: &message.EpochError{},
		commit.Aborted: &AbortError{Index: 1, Reason: "text"}, commit.Rejected: &AbortError{Index: 1, Reason: "text", Permanent: true},
		commit.Broken:       &RollbackError{"text"},
		commit.State("new"): `unexpected outcome "new"`,
	} {
		err := outcomeError(&commit.Outcome{State: state, Index: 2, Text: "text"}, begun(tr))
		switch want := want.(type) {
		case nil:
			if err != nil {
				t.Errorf("%s: %v", state, err)
			}
		case string:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", state, err, want)
			}
		case error:
			same := reflect.TypeOf(err) == reflect.TypeOf(want)
			if !errors.Is(err, want) && !same || same && strings.HasSuffix(reflect.TypeOf(want).String(), "AbortError") && !reflect.DeepEqual(err, want) {
				t.Errorf("%s: %#v, want %#v", state, err, want)
			}
		}
	}
}

func TestErrorOfACommandNamesItsPlace(t *testing.T) {
	t.Parallel()
	tr := unconnected(t)
	for want, out := range map[string]commit.Outcome{
		"luatx: event 0: WRONGTYPE x":                              {Index: -1, Text: "WRONGTYPE x"},
		"luatx: event 2: WRONGTYPE x":                              {Index: -3, Text: "WRONGTYPE x"},
		"luatx: the commit script failed and was undone: some bug": {Text: "some bug"},
		"luatx: command 4 (): WRONGTYPE x":                         {Index: 5, Text: "WRONGTYPE x"},
		"luatx: command 0 (): WRONGTYPE x":                         {Index: 1, Text: "WRONGTYPE x"},
	} {
		out.State = commit.Failed
		if err := outcomeError(&out, begun(tr)); err == nil || err.Error() != want {
			t.Errorf("error is %q, want %q", err, want)
		}
	}
	aborted := outcomeError(&commit.Outcome{State: commit.Aborted, Index: 1, Text: "text"}, begun(tr))
	if want := (&AbortError{Reason: "text"}); !reflect.DeepEqual(aborted, want) {
		t.Errorf("an abort of no recorded command is %#v, want %#v", aborted, want)
	}
	tx := begun(tr)
	tx.Pipeline().Incr(t.Context(), "{tag}k")
	const text = "NOPERM this user has no permissions to run the 'incr' command"
	got := outcomeError(&commit.Outcome{State: commit.Failed, Index: 1, Text: text}, tx)
	if want := (&CommandError{Command: "incr", Text: text, Remedy: remedies["NOPERM"]}); !reflect.DeepEqual(got, want) {
		t.Errorf("the first command is not allowed: %#v, want %#v", got, want)
	}
	tr.cfg.Procedures = []Procedure{{Name: "pay"}}
	tx = begun(tr)
	tx.Call("pay", nil)
	aborted = outcomeError(&commit.Outcome{State: commit.Aborted, Index: 1, Text: "text"}, tx)
	if want := (&AbortError{Procedure: "pay", Reason: "text"}); !reflect.DeepEqual(aborted, want) {
		t.Errorf("an abort of the first command is %#v, want %#v", aborted, want)
	}
	for _, index := range []int{0, -1} {
		out := commit.Outcome{State: commit.Failed, Index: index, Text: "NOPERM this user has no permissions to run the 'hset' command"}
		if _, refused := errors.AsType[*RefusedError](outcomeError(&out, begun(tr))); !refused {
			t.Errorf("a command of luatx that is not allowed: %v", outcomeError(&out, begun(tr)))
		}
	}
}

func TestObserverDistinguishesTheReasonsOfErrors(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"conflict": ErrConflict, "fenced": ErrFenced, "full": &OutboxFullError{}, "expired": ErrExpired, "unknown": &UnknownError{Err: errors.New("x")},
		"keyspace": ErrKeyspace, "refused": ErrTooLarge, "broken": &RollbackError{}, "failed": &CommandError{}, "denied": &RefusedError{},
		"aborted": &AbortError{}, "error": errors.New("x"),
	} {
		if got := (Commit{Err: fmt.Errorf("wrapped: %w", err)}).Outcome(); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
	for outcome, want := range map[Outcome]string{0: "not committed", Committed: "committed", Replayed: "replayed", Duplicate: "duplicate", Duplicate + 1: "not committed"} {
		if got := (Commit{Result: Result{Outcome: outcome}}).Outcome(); got != want {
			t.Errorf("outcome %d is %q, want %q", outcome, got, want)
		}
	}
}

func TestErrorsSayWhatHappenedAndWhatToDo(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"luatx: procedure pay aborted: no money":                                                 &AbortError{Procedure: "pay", Reason: "no money"},
		"luatx: rollback failed: text":                                                           &RollbackError{"text"},
		"luatx: the outbox is full: slot 7: 10 events may wait":                                  &OutboxFullError{What: "events", Limit: 10, Slot: 7},
		"luatx: the outbox is full: slot 7: 10 bytes may wait":                                   &OutboxFullError{What: "bytes", Limit: 10, Slot: 7},
		"luatx: the outbox is full: slot 7: 10 events of one ordering key may wait":              &OutboxFullError{What: "lane", Limit: 10, Slot: 7},
		"luatx: the outbox is full: slot 7: 10 events are parked: re-arm or discard them":        &OutboxFullError{What: "parked", Limit: 10, Slot: 7},
		"luatx: the outbox is full: slot 7: parked events have 10 bytes: re-arm or discard them": &OutboxFullError{What: "parked bytes", Limit: 10, Slot: 7},
		"luatx: command 1 (set): NOPERM: ask":                                                    &CommandError{Index: 1, Command: "set", Text: "NOPERM", Remedy: "ask"},
	} {
		if got := err.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestReceiptOfAPositionNamesIt(t *testing.T) {
	t.Parallel()
	tr := unconnected(t)
	tr.cfg.Namespace = "shop-in-the-north"
	deadline := time.UnixMilli(1_800_000_000_000)
	for home, owner := range map[int]string{77: " 3 first epoch", 0: " 3 first", slot.Count - 1: " 3 "} {
		tx := &Tx{t: tr, sent: &sent{commit: commit.Commit{
			Shard: tr.shards.Shard(home), Token: "0123456789", NotAfter: deadline,
			Position: &commit.Position{Field: "orders\x007", Offset: "42", After: "41", Owner: owner},
		}}}
		got, err := newReceipt(tx).parse()
		want := receiptParts{
			slot: home, position: &commit.Position{Field: "orders\x007", Offset: "42", Owner: owner}, token: "0123456789",
			until: deadline.Add(slack), known: deadline.Add(-slack - tr.cfg.CommitTimeout + tr.cfg.Retention), namespace: "shop-in-the-north",
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("slot %d: %+v, %v, want %+v", home, got, err, want)
		}
	}
}

func TestReceiptExpiresWithTheShorterRetentionOfBothTransactors(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	keeping := func(retention time.Duration) *Transactor {
		tr, err := New(client, Config{Namespace: "shop", Retention: retention})
		redistest.Must(t, err)
		return tr
	}
	day, hour, began := keeping(24*time.Hour), keeping(time.Hour), time.UnixMilli(1_800_000_000_000)
	for name, c := range map[string]struct {
		committed, resolves *Transactor
		retention           time.Duration
	}{
		"one retention":                {day, day, 24 * time.Hour},
		"a shorter one of the commit":  {hour, day, time.Hour},
		"a shorter one of the resolve": {day, hour, time.Hour},
	} {
		receipt := newReceipt(&Tx{t: c.committed, sent: &sent{commit: commit.Commit{
			Shard: day.shards.Shard(7), Digest: "0123456789abcdef", Token: "0123456789", NotAfter: began.Add(c.committed.cfg.CommitTimeout + slack),
		}}})
		for late, want := range map[time.Duration]error{0: ErrExpired, time.Millisecond: ErrReceiptExpired} {
			server.SetTime(began.Add(c.retention + late))
			if _, err := c.resolves.Resolve(t.Context(), receipt); !errors.Is(err, want) {
				t.Errorf("%s, %v after it: %v, want %v", name, late, err, want)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	receipt := newReceipt(&Tx{t: day, sent: &sent{commit: commit.Commit{Shard: day.shards.Shard(7), Digest: "0123456789abcdef", Token: "0123456789", NotAfter: began}}})
	if _, err := day.Resolve(ctx, receipt); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has left: %v", err)
	}
}

func TestOnlyAFaultOfTheMessageMayParkIt(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		errors.New("no such customer"): true, &CommandError{Index: 1}: true, &AbortError{}: true, ErrTooLarge: true, ErrCrossSlot: true,
		ErrFenced: false, ErrConflict: false, ErrExpired: false, &UnknownError{Err: errors.New("x")}: false, &OutboxFullError{}: false,
		ErrKeyspace: false, message.ErrStopped: false, untried{}: false, &RefusedError{Code: "OOM"}: false, &RollbackError{}: false,
	} {
		for _, err := range []error{err, fmt.Errorf("wrapped: %w", err)} {
			if got := isFault(err); got != want {
				t.Errorf("%v: the message's fault is %t, want %t", err, got, want)
			}
		}
	}
}

// untried is the error of a message that was not tried.
type untried struct{}

func (untried) Error() string { return "untried" }
func (untried) Untried() bool { return true }

func TestKeyOfAnotherSlotIsNamedWithTheFirstKeyAndBothSlots(t *testing.T) {
	t.Parallel()
	ctx, tr := t.Context(), unconnected(t)
	said := func(tx *Tx, name, home string) {
		t.Helper()
		key := "{other}:" + name
		want := fmt.Sprintf("%v: SET: key %q hashes to slot %d, %s of the transaction to slot %d", ErrCrossSlot, key, slot.Of(key), home, slot.OfTag("tag"))
		if err := tx.Pipeline().Set(ctx, key, 1, 0).Err(); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	tx := begun(tr)
	said(tx, "1", "tag {tag}")
	for _, key := range []string{"{tag}:first", "{tag}:second"} {
		if err := tx.Pipeline().Set(ctx, key, 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
		said(tx, "2", `key "{tag}:first" and tag {tag}`)
	}
}

func TestObserversAreCalledInTheirOrder(t *testing.T) {
	t.Parallel()
	var calls []string
	observer := func(name string) Observer {
		return Observer{Committed: func(context.Context, Commit) { calls = append(calls, name) }}
	}
	observer("first").And(observer("second")).And(observer("third")).Committed(t.Context(), Commit{})
	if got := strings.Join(calls, ", "); got != "first, second, third" {
		t.Errorf("the calls are %s", got)
	}
}

func TestErrorOfAProcedureNamesItsFirstInvalidName(t *testing.T) {
	t.Parallel()
	err := Procedure{Name: "pay", Keys: []string{"from", "end"}, Args: []string{"and"}, Source: "return 1"}.validate()
	if err == nil || !strings.Contains(err.Error(), `pay: "end" cannot name`) {
		t.Errorf("%v", err)
	}
}

func TestKeySetListsEachKeyOnce(t *testing.T) {
	t.Parallel()
	for n := range 40 {
		var set keySet
		for range 2 {
			for i := range n {
				set.add(fmt.Sprint("key", i))
			}
		}
		if len(set.keys) != n {
			t.Errorf("%d keys of %d are listed", len(set.keys), n)
		}
	}
}

func TestTagInIsTheTextBetweenTheFirstBraces(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{"a{b}c": "b", "{b}{c}": "b", "a": "", "a{b": "", "a{}{b}": "", "a}b{": ""} {
		if got, ok := tagIn(key); ok && got != want || ok != (want != "") {
			t.Errorf("the tag of %q is %q, %t", key, got, ok)
		}
	}
}

func TestEventIDMustBeUTF8(t *testing.T) {
	t.Parallel()
	attrs := message.Attributes{"type": "t", "source": "/s"}
	for _, event := range []Event{
		{ID: "\xff", Attributes: attrs},
		{Attributes: message.Attributes{"id": "\xff", "type": "t", "source": "/s"}},
		{ID: "\xff", Body: []byte(`{"specversion":"1.0","id":"1","type":"t","source":"/s"}`)},
	} {
		if err := begun(unconnected(t)).Emit(event); err == nil || !strings.Contains(err.Error(), "the id is not UTF-8") {
			t.Errorf("%+v: got error %v, want one for its id", event, err)
		}
	}
	if err := begun(unconnected(t)).Emit(Event{ID: "ä", Attributes: attrs}); err != nil {
		t.Error(err)
	}
}

func TestMemoryIsOnlyReusedIfNobodyElseHasIt(t *testing.T) {
	t.Parallel()
	committed := commit.Outcome{State: commit.Committed}
	for name, c := range map[string]struct {
		sent   sent
		events []shard.Event
		reused bool // the state
		bodies int  // that are reused
	}{
		"more bodies than are kept": {sent{commit: commit.Commit{Tries: 1, Outcome: committed}}, own(17), true, 16},
		"bodies that are left over": {sent{commit: commit.Commit{Tries: 1, Outcome: committed}, bodies: [][]byte{{}, {}, {}}}, own(1), true, 1},
		"one request, no relay":     {sent{commit: commit.Commit{Tries: 1, Outcome: committed}}, own(2), true, 2},
		"a relay has the events":    {sent{commit: commit.Commit{Tries: 1, Outcome: committed}, relay: noRelay{}}, own(2), true, 0},
		"the caller's own body":     {sent{commit: commit.Commit{Tries: 1, Outcome: committed}}, []shard.Event{{Body: []byte("{}")}}, true, 0},
		"a second request":          {sent{commit: commit.Commit{Tries: 2, Outcome: committed}}, own(1), false, 0},
		"a resolved request":        {sent{commit: commit.Commit{Tries: 1, Unanswered: true, Outcome: committed}}, own(1), false, 0},
		"not sent":                  {sent{commit: commit.Commit{Outcome: committed}}, own(1), false, 0},
		"replayed":                  {sent{commit: commit.Commit{Tries: 1, Outcome: commit.Outcome{State: commit.Replayed}}}, own(1), false, 0},
		"an error":                  {sent{commit: commit.Commit{Tries: 1, Outcome: committed}, err: context.Canceled}, own(1), false, 0},
	} {
		c.sent.commit.Events, c.sent.began = c.events, time.Now()
		c.sent.few.keys[0], c.sent.cmds, c.sent.reserved = "key", []redis.Cmder{nil}, true
		m, tx := new(memory), &Tx{sent: &c.sent}
		m.reclaim(tx)
		if reused := tx.sent == nil; reused != c.reused {
			t.Errorf("%s: reused %t, want %t", name, reused, c.reused)
		}
		assert.Equal(t, len(c.sent.bodies), c.bodies, "%s: bodies", name)
		if c.reused && !reflect.DeepEqual(c.sent, sent{bodies: c.sent.bodies}) {
			t.Errorf("%s: something is left: %+v", name, c.sent)
		}
	}
}

// own returns events whose bodies the transaction has created.
func own(n int) []shard.Event {
	return slices.Repeat([]shard.Event{{Body: []byte("{}"), Own: true}}, n)
}

func TestSpareReturnsEachBodyOnce(t *testing.T) {
	t.Parallel()
	s := &sent{bodies: [][]byte{[]byte("a"), []byte("b")}}
	for _, want := range []string{"b", "a", ""} {
		assert.Equal(t, string(s.spare()), want, "the body")
	}
}
