package inbox_test

import (
	"errors"
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

// TestDeadLetterCountsTheFailuresOfAnEntryThatWasDeliveredLessOften also parks a message of a stream whose entry is not known.
func TestDeadLetterCountsTheFailuresOfAnEntryThatWasDeliveredLessOften(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	for _, known := range []bool{true, false} {
		c, tenure := newCounting(t, client, inbox.PositionConfig{MaxAttempts: 6}), &message.Tenure{}
		c.fail = errHandler
		in := rig.Key(t, c.tr, "a", "orders")
		source, _ := deliver(t, client, in, "1").InputSource()
		for n := 1; n <= 6; n++ {
			msg := ordered(at(1, tenure))
			if known {
				msg.WithValue(group.EntryKey{}, group.Entry(fields{"id", "1"}))
			}
			msg.SetAcking(message.NewAckingFrom(message.AckingConfig{Source: source, Position: at(1, tenure)}))
			if err := c.process(msg); (err == nil) != (n == 6) {
				t.Errorf("failure %d: %v", n, err)
			}
		}
		dead, err := group.ReadDead(t.Context(), client, group.DeadLetterKey(in), "-", "+", 10)
		if err != nil || len(dead) != 1 || dead[0].Foreign == known || known && dead[0].Deliveries != 6 {
			t.Errorf("known %t: %+v, %v", known, dead, err)
		}
	}
}

func TestMessageThatFailsForAWhileIsNotParkedWithoutAMaximum(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	c, tenure := newCounting(t, client, inbox.PositionConfig{}), &message.Tenure{}
	c.fail = errHandler
	for range 3 {
		if err := c.process(ordered(at(1, tenure))); !errors.Is(err, errHandler) {
			t.Errorf("%v", err)
		}
	}
}

func TestMessageThatNoDeadLetterCanHoldIsNotParked(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	c := newCounting(t, client, inbox.PositionConfig{})
	c.fail = message.Permanent(errHandler)
	msg := message.New(make(chan int), rig.Order("1"), message.NewAckingFrom(message.AckingConfig{Position: at(1, &message.Tenure{})}))
	if err := c.process(msg); !errors.Is(err, errHandler) {
		t.Errorf("%v", err)
	}
	wantSettled(t, msg, false)
}

// TestFailuresOfAMessageThatWasCommittedAreForgotten delivers it again after a rewind.
func TestFailuresOfAMessageThatWasCommittedAreForgotten(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	c, tenure := newCounting(t, client, inbox.PositionConfig{MaxAttempts: 2}), &message.Tenure{Shared: true}
	for _, fail := range []error{errHandler, nil} {
		c.fail = fail
		if err := c.process(ordered(at(1, tenure))); !errors.Is(err, fail) {
			t.Errorf("%v, want %v", err, fail)
		}
	}
	c.rewind("0", "")
	if err := c.process(ordered(at(1, tenure))); !errors.Is(err, luatx.ErrFenced) {
		t.Errorf("behind the rewind: %v", err)
	}
	c.fail = errHandler
	if err := c.process(ordered(at(1, tenure))); !errors.Is(err, errHandler) {
		t.Errorf("the first failure after it: %v", err)
	}
}

func TestTransactionWithTwoInboxesIsAnError(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	c := newCounting(t, client, inbox.PositionConfig{}, inbox.Middleware(inbox.Config{}))
	other := newCounting(t, client, inbox.PositionConfig{}, inbox.Position(inbox.PositionConfig{}))
	for _, c := range []*counting{c, other} {
		if err := c.process(ordered(at(1, &message.Tenure{}))); !errors.Is(err, luatx.ErrNested) || c.runs > 0 {
			t.Errorf("%v after %d runs", err, c.runs)
		}
	}
}
