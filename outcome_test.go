package luatx

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
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
	} {
		out.State = commit.Failed
		if err := outcomeError(&out, begun(tr)); err == nil || err.Error() != want {
			t.Errorf("error is %q, want %q", err, want)
		}
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
	deadline := time.UnixMilli(1_800_000_000_000)
	tx := &Tx{t: tr, commit: commit.Commit{
		Shard: tr.shards.Shard(77), Token: "0123456789", NotAfter: deadline,
		Position: &commit.Position{Field: "orders\x007", Offset: "42", After: "41", Owner: " 3 first epoch"},
	}}
	got, err := newReceipt(tx).parse()
	want := receiptParts{
		slot: 77, position: &commit.Position{Field: "orders\x007", Offset: "42", Owner: " 3 first epoch"}, token: "0123456789",
		until: deadline.Add(slack), known: deadline.Add(-slack - tr.cfg.CommitTimeout + tr.cfg.Retention), namespace: "shop",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
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
