package commit

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/assert"
)

func TestResultOfEachStateIsDecoded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row      []any
		commands int
		want     Outcome
	}{
		{[]any{"committed", int64(0)}, 0, Outcome{State: Committed}},
		{[]any{"committed", int64(1), "a"}, 1, Outcome{State: Committed, Acked: true, Replies: []any{"a"}}},
		{[]any{"committed", int64(2), "a", "b"}, 2, Outcome{State: Committed, Woken: true, Replies: []any{"a", "b"}}},
		{[]any{"committed", int64(0), "a", "id1", "kkey", "body1", "id2", "", "body2"}, 1, Outcome{
			State: Committed, Replies: []any{"a"}, Emitted: []shard.Event{{ID: "id1", Key: "key", Body: []byte("body1")}, {ID: "id2", Body: []byte("body2")}},
		}},
		{[]any{"replayed", int64(1), int64(0), "2:frames"}, 2, Outcome{State: Replayed, Acked: true, Kept: "frames"}},
		{[]any{"replayed", int64(0), int64(1), "2:frames"}, 3, Outcome{State: Replayed, Same: true}},
		{[]any{"duplicate", int64(0), int64(0), ""}, 0, Outcome{State: Duplicate}},
		{[]any{"failed", int64(2), "ERR x"}, 2, Outcome{State: Failed, Index: 2, Text: "ERR x"}},
		{[]any{"aborted", int64(-1), "why", "more"}, 2, Outcome{State: Aborted, Index: -1, Text: "why"}},
		{[]any{"rejected", int64(0), int64(7)}, 2, Outcome{State: Rejected, Text: "7"}},
		{[]any{"full", "events"}, 0, Outcome{State: Full, Text: "events"}},
		{[]any{"refused"}, 0, Outcome{State: Refused}},
		{[]any{"early", "7", "more"}, 0, Outcome{State: Early, Text: "7"}},
		{[]any{"fenced"}, 0, Outcome{State: Fenced}},
	} {
		got, err := outcome(c.row, c.commands)
		assert.NoError(t, err, "%v", c.row)
		if len(got.Replies) == 0 {
			got.Replies = nil
		}
		assert.Equal(t, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", c.want), "the outcome of %v", c.row)
	}
	for _, row := range [][]any{
		nil,
		{"nosuch"},
		{"failed", int64(1)},
		{"duplicate", int64(0), int64(0)},
		{"committed", int64(0), "a"},           // two replies are missing
		{"committed", int64(0)},                // all three
		{"committed", int64(0), 1, 2, 3, "id"}, // half an event
	} {
		if got, err := outcome(row, 3); err == nil {
			t.Errorf("%v: %+v", row, got)
		}
	}
}

func TestAnswerThatIsMissingIsAnError(t *testing.T) {
	t.Parallel()
	for _, reply := range [][]any{{"1", int64(1), "fenced"}, {"1", int64(1), "fenced", int64(1)}, {"1", int64(1), "fenced", "x", "fenced"}} {
		set := newReplying(t, reply)
		batch := []*Commit{sending(set, 0, "a"), sending(set, 0, "b")}
		set.Send(t.Context(), time.Time{}, batch)
		if batch[0].Err != nil || batch[0].Outcome.State != Fenced || batch[0].Unanswered {
			t.Errorf("%v: the first is %+v, %v", reply, batch[0].Outcome, batch[0].Err)
		}
		if batch[1].Err == nil || !batch[1].Unanswered {
			t.Errorf("%v: the second is %+v, and its outcome is unknown: %t", reply, batch[1].Outcome, batch[1].Unanswered)
		}
	}
}

func TestReplyOfACompiledScriptIsDecodedIfItIsComplete(t *testing.T) {
	t.Parallel()
	k := &compiled{shape: shape{steps: make([]step, 2)}, plan: &plan{}}
	rows := []any{int64(1), "a", "b", int64(2), "c", "d"}
	for nth, want := range []Outcome{{State: Committed, Acked: true, Replies: rows[1:3]}, {State: Committed, Woken: true, Replies: rows[4:]}} {
		got, err := k.outcome(rows, nth)
		assert.NoError(t, err, "transaction %d", nth)
		assert.Equal(t, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want), "transaction %d", nth)
	}
	assert.Equal(t, k.plan.hits.Load(), 2, "hits")
	for n := range rows {
		if got, err := k.outcome(rows[:n:n], n/3); err == nil {
			t.Errorf("%d rows for transaction %d: %+v", n, n/3, got)
		}
	}
	assert.Equal(t, k.plan.hits.Load(), 2, "hits after incomplete replies")
}

func TestFailedCommandHasItsRecordedPosition(t *testing.T) {
	t.Parallel()
	for index, want := range map[int64]int{-1: -1, 0: 0, 1: 3, 2: 1, 3: 2, 4: 4} {
		set := newReplying(t, []any{"1", int64(3), "failed", index, "ERR x"})
		c := sending(set, 0, "a", "k1", "k2", "k3")
		c.Order = []int{2, 0, 1}
		for range 2 {
			set.Send(t.Context(), time.Time{}, []*Commit{c})
			assert.Equal(t, c.Outcome.Index, want, "the position of command %d", index)
		}
		assert.Equal(t, c.Tries, 2, "round trips of both attempts")
	}
}

func TestCompiledScriptThatSkipsATransactionLeavesItToTheGeneralOne(t *testing.T) {
	t.Parallel()
	rows := []any{"1", int64(0), "a", "b", int64(-1), false, false}
	for _, c := range []struct {
		reply any
		nth   int
		want  bool
	}{
		{int64(0), 0, true},
		{int64(0), 1, true},
		{int64(1), 0, false},
		{"text", 0, false},
		{nil, 0, false},
		{rows, 0, false},
		{rows, 1, true},
		{rows[:4], 1, true},
	} {
		b := &Commit{compiled: &compiled{}, plan: &plan{}, plans: &plans{}, Commands: make([]Command, 2)}
		assert.Equal(t, b.Again(c.reply, c.nth), c.want, "transaction %d is sent again after %v", c.nth, c.reply)
		if (b.compiled == nil) != c.want || (b.plan.left.Load() == 1) != c.want {
			t.Errorf("after %v: compiled %t, left %d times", c.reply, b.compiled != nil, b.plan.left.Load())
		}
	}
}

func TestCommitIsSentAgainIfItsBodyIsGone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply any
		gone  bool
	}{
		{[]any{"1", int64(2), "full", "body"}, true},
		{[]any{"1", int64(2), "full", "events"}, false},
		{[]any{"1", int64(2), "refused", "body"}, false},
		{[]any{"1", int64(3), "full", "body", "more"}, false},
		{[]any{"1", int64(1), "full"}, false},
		{"text", false},
	} {
		for _, staged := range []bool{true, false} {
			b := &Commit{staged: staged, Events: []shard.Event{{Reference: "r"}}}
			assert.Equal(t, b.Again(c.reply, 0), c.gone && staged, "sent again after %v, staged %t", c.reply, staged)
			assert.Equal(t, b.Events[0].Reference == "", c.gone && staged, "the body is an argument after %v, staged %t", c.reply, staged)
		}
	}
}

func TestBodyOf8KiBBypassesTheScriptUntilTheCommitIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]int64{time.Hour: 3_660_000, 0: 60_000, -time.Hour: 60_000} {
			c := &Commit{Shard: sending(newReplying(t, nil), 0, "").Shard, Digest: "d", Token: "t", NotAfter: time.Now().Add(left)}
			c.Events = []shard.Event{{ID: "a", Body: make([]byte, 8<<10-1)}, {ID: "b", Body: make([]byte, 8<<10)}}
			c.stage()
			stores := c.stores(nil)
			assert.Equal(t, c.Events[0].Reference, "", "the reference to the small body")
			if len(stores) != 1 || c.Events[1].Reference == "" {
				t.Fatalf("%d bodies bypass the script", len(stores))
			}
			expiry := fmt.Sprint(stores[0][3:])
			assert.Equal(t, expiry, fmt.Sprintf("[px %d nx]", want), "the expiry with %v left", left)
			c.Events = c.Events[:1]
			c.stage()
			assert.Equal(t, len(c.stores(nil)), 0, "bodies of small events")
		}
	})
}

// other is a load that is no commit.
type other struct{ eval.Load }

func TestOtherLoadsShareNoScriptWithACommit(t *testing.T) {
	t.Parallel()
	if joint, fits := (&Commit{}).Join(other{}); joint != nil || fits {
		t.Errorf("%v, %t", joint, fits)
	}
}

func TestBatchThatMustKeepItsOrderSharesAScript(t *testing.T) {
	t.Parallel()
	one, two := &compiled{}, &compiled{}
	free, bound := &Position{}, &Position{After: "1"}
	for name, c := range map[string]struct {
		positions []*Position
		scripts   []*compiled
		general   bool
	}{
		"without positions":  {[]*Position{nil, nil}, []*compiled{one, two}, false},
		"in any order":       {[]*Position{free, free}, []*compiled{one, two}, false},
		"of one plan":        {[]*Position{bound, bound, bound}, []*compiled{one, one, one}, false},
		"of two plans":       {[]*Position{free, bound}, []*compiled{one, two}, true},
		"the third differs":  {[]*Position{free, free, bound}, []*compiled{one, one, two}, true},
		"the second differs": {[]*Position{free, free, bound}, []*compiled{one, two, one}, false},
		"a single one":       {[]*Position{bound}, []*compiled{one}, false},
	} {
		batch := make([]*Commit, len(c.positions))
		for i := range batch {
			batch[i] = &Commit{Position: c.positions[i], compiled: c.scripts[i]}
		}
		together(batch)
		for i, b := range batch {
			if want := c.scripts[i]; c.general && b.compiled != nil || !c.general && b.compiled != want {
				t.Errorf("%s: transaction %d has another script", name, i)
			}
		}
	}
}

func TestEpochOfAnOwnerMayHaveSpaces(t *testing.T) {
	t.Parallel()
	assert.Equal(t, OwnerOf(12, "e"), " 12 e", "the owner")
	for _, epoch := range []string{"", "e", "e 1 of 2"} {
		assert.Equal(t, (&Position{Owner: OwnerOf(12, epoch)}).epoch(), epoch, "the epoch")
	}
}
