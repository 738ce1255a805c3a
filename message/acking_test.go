package message_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/luatx/luatx/message"
)

var errBoom = errors.New("boom")

// journal records calls in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) want(t *testing.T, lines ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.lines, lines) {
		t.Errorf("got %q, want %q", j.lines, lines)
	}
}

// acking returns an acking that records the settlement.
func (j *journal) acking() *message.Acking {
	return message.NewAckingFrom(message.AckingConfig{
		Ack:     func() { j.add("ack") },
		Nack:    func(err error) { j.add("nack " + err.Error()) },
		Settled: func() { j.add("settled") },
	})
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

type settling struct {
	name string
	call func(*message.Message) bool
	told []string
	err  error
}

var settlings = []settling{
	{"ack", (*message.Message).Ack, []string{"ack", "settled"}, nil},
	{"nack", func(m *message.Message) bool { return m.Nack(errBoom) }, []string{"nack boom", "settled"}, errBoom},
	{"nil nack", func(m *message.Message) bool { return m.Nack(nil) }, []string{"nack " + message.ErrNacked.Error(), "settled"}, message.ErrNacked},
	{"release", (*message.Message).Release, []string{"settled"}, nil},
	{"acknowledged", (*message.Message).Acknowledged, []string{"settled"}, nil},
}

func TestFirstSettlementWins(t *testing.T) {
	t.Parallel()
	for _, first := range settlings {
		t.Run(first.name, func(t *testing.T) {
			t.Parallel()
			var j journal
			msg := message.New(nil, nil, j.acking())
			before := msg.Settled()
			if isClosed(before) || msg.Err() != nil {
				t.Fatal("settled before any call")
			}
			if !first.call(msg) {
				t.Error("the first call did not settle")
			}
			for _, later := range settlings {
				if later.call(msg) {
					t.Errorf("%s settled again", later.name)
				}
			}
			if !isClosed(before) || !isClosed(msg.Settled()) {
				t.Error("Settled is not closed")
			}
			if !errors.Is(msg.Err(), first.err) || (first.err == nil && msg.Err() != nil) {
				t.Errorf("Err is %v, want %v", msg.Err(), first.err)
			}
			j.want(t, first.told...)
		})
	}
}

func TestSettledReturnsAClosedChannelAfterTheSettlement(t *testing.T) {
	t.Parallel()
	msg := message.New(nil, nil, message.NewAcking(nil, nil))
	msg.Ack()
	if !isClosed(msg.Settled()) {
		t.Error("Settled is not closed")
	}
}

func TestMessageWithoutAckingCannotBeSettled(t *testing.T) {
	t.Parallel()
	msg := message.New("x", nil, nil)
	for _, s := range settlings {
		if s.call(msg) {
			t.Errorf("%s settled a message that cannot be settled", s.name)
		}
	}
	if msg.Settled() != nil || msg.Err() != nil {
		t.Error("Settled and Err must be nil")
	}
	if _, ok := msg.InputSource(); ok {
		t.Error("there is no input source")
	}
}

func TestConcurrentSettlementsSettleAMessageOnce(t *testing.T) {
	t.Parallel()
	for range 50 {
		var calls, wins, done atomic.Int32
		msg := message.New(nil, nil, message.NewAckingFrom(message.AckingConfig{
			Ack:     func() { calls.Add(1) },
			Nack:    func(error) { calls.Add(1) },
			Settled: func() { done.Add(1) },
		}))
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				settle := msg.Ack
				if i%2 == 1 {
					settle = func() bool { return msg.Nack(errBoom) }
				}
				if settle() {
					wins.Add(1)
				}
				<-msg.Settled()
			})
		}
		wg.Wait()
		if wins.Load() != 1 || calls.Load() != 1 || done.Load() != 1 {
			t.Fatalf("%d wins, %d calls, %d times settled; want one each", wins.Load(), calls.Load(), done.Load())
		}
	}
}

func TestSettledClosesAfterTheSourceIsNotified(t *testing.T) {
	t.Parallel()
	var msg *message.Message
	var early bool
	msg = message.New(nil, nil, message.NewAcking(func() {
		early = isClosed(msg.Settled())
		if msg.Ack() || msg.Nack(errBoom) { // must neither settle nor deadlock
			early = true
		}
	}, nil))
	msg.Ack()
	if early {
		t.Error("settled before the source was told")
	}
}

func TestPanickingCallbackStillSettlesTheMessage(t *testing.T) {
	t.Parallel()
	boom := func() { panic("boom") }
	cases := map[string]*message.Acking{
		"ack":        message.NewAckingFrom(message.AckingConfig{Ack: boom}),
		"settled":    message.NewAckingFrom(message.AckingConfig{Settled: boom}),
		"both":       message.NewAckingFrom(message.AckingConfig{Ack: boom, Settled: boom}),
		"shared ack": message.NewSharedAcking(1, boom, nil),
	}
	for name, acking := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg := message.New(nil, nil, acking)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was swallowed")
					}
				}()
				msg.Ack()
			}()
			if !isClosed(msg.Settled()) {
				t.Error("somebody would wait for ever")
			}
			if msg.Ack() {
				t.Error("settled twice")
			}
		})
	}
}

func TestInputSourceIsThatOfTheAcking(t *testing.T) {
	t.Parallel()
	want := message.Source{Stream: "s", Group: "g", Consumer: "c", Entry: "1-0"}
	raw := message.NewRaw(nil, nil, message.NewAckingFrom(message.AckingConfig{Source: want}))
	if got, ok := message.Copy(raw, "decoded").InputSource(); !ok || got != want {
		t.Errorf("got %v, %v", got, ok)
	}
	if _, ok := message.New(nil, nil, message.NewAcking(nil, nil)).InputSource(); ok {
		t.Error("an acking without a source has one")
	}
	if _, ok := message.New(nil, nil, message.NewSharedAcking(2, nil, nil)).InputSource(); ok {
		t.Error("a shared acking has a source")
	}
}

func TestSharedAckingAcksAfterEveryMessageAndEndsAtANack(t *testing.T) {
	t.Parallel()
	type step struct {
		msg  int
		call func(*message.Message) bool
		want bool
	}
	ack, nack := (*message.Message).Ack, func(m *message.Message) bool { return m.Nack(errBoom) }
	cases := []struct {
		name  string
		steps []step
		told  []string
	}{
		{"two of three", []step{{0, ack, true}, {1, ack, true}}, nil},
		{"all three", []step{{0, ack, true}, {1, ack, true}, {2, ack, true}}, []string{"ack"}},
		{"one counts once", []step{{0, ack, true}, {0, ack, false}, {0, ack, false}}, nil},
		{"nack ends it", []step{{0, ack, true}, {1, nack, true}, {2, ack, false}, {2, nack, false}}, []string{"nack boom"}},
		{"release ends it", []step{{1, (*message.Message).Release, true}, {0, ack, false}, {2, nack, false}}, nil},
		{"acknowledged counts", []step{{0, ack, true}, {1, (*message.Message).Acknowledged, true}, {2, ack, true}}, []string{"ack"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var j journal
			shared := message.NewSharedAcking(3, func() { j.add("ack") }, func(err error) { j.add("nack " + err.Error()) })
			msgs := []*message.Message{message.New(0, nil, shared), message.New(1, nil, shared), message.New(2, nil, nil)}
			msgs[2].SetAcking(shared)
			for i, s := range c.steps {
				if got := s.call(msgs[s.msg]); got != s.want {
					t.Errorf("step %d: got %v, want %v", i, got, s.want)
				}
			}
			j.want(t, c.told...)
		})
	}
}

func TestNackOfASharedAckingSettlesItsOtherMessages(t *testing.T) {
	t.Parallel()
	shared := message.NewSharedAcking(2, nil, nil)
	one, two := message.New(1, nil, shared), message.New(2, nil, shared)
	waiting := two.Settled()
	one.Nack(errBoom)
	if !isClosed(waiting) || !errors.Is(two.Err(), errBoom) {
		t.Error("the nack did not reach the other message")
	}
	if late := message.New(3, nil, shared); late.Ack() || !errors.Is(late.Err(), errBoom) {
		t.Error("a message that joined later was not settled")
	}
}

func TestCopiesOfAMessageCountOnceInASharedAcking(t *testing.T) {
	t.Parallel()
	var j journal
	shared := message.NewSharedAcking(2, func() { j.add("ack") }, nil)
	msg := message.New(1, nil, shared)
	if !message.Copy(msg, "copy").Ack() || msg.Ack() {
		t.Error("copy and original must settle as one")
	}
	j.want(t)
}

func TestSharedAckingOfNoMessagesAcksAtOnce(t *testing.T) {
	t.Parallel()
	var j journal
	if message.NewSharedAcking(0, func() { j.add("ack") }, nil) != nil {
		t.Error("want no acking")
	}
	j.want(t, "ack")
}

func TestConcurrentSettlementsOfASharedAckingSettleOnce(t *testing.T) {
	t.Parallel()
	const n = 16
	for _, nacks := range []bool{false, true} {
		for range 20 {
			var acks, nackCalls atomic.Int32
			shared := message.NewSharedAcking(n, func() { acks.Add(1) }, func(error) { nackCalls.Add(1) })
			var wg sync.WaitGroup
			for i := range n {
				msg := message.New(i, nil, shared)
				wg.Go(func() {
					if nacks && i%4 == 0 {
						msg.Nack(errBoom)
					} else {
						msg.Ack()
					}
					<-msg.Settled()
				})
			}
			wg.Wait()
			if wantNack := nacks; (acks.Load() == 1) == wantNack || (nackCalls.Load() == 1) != wantNack {
				t.Fatalf("%d acks and %d nacks", acks.Load(), nackCalls.Load())
			}
		}
	}
}
