package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/test/scripted"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// pauses returns the pauses between the first, second and third of every three attempts.
func pauses(at []time.Duration) (first, second []time.Duration) {
	for i := 0; i+2 < len(at); i += 3 {
		first, second = append(first, at[i+1]-at[i]), append(second, at[i+2]-at[i+1])
	}
	return first, second
}

// wantPauses checks random pauses. They must be between 10 ms and a bound, and many must be near the bound. If they also
// wait for a redelivery, the bound includes the 10 ms of the shortest read.
func wantPauses(t *testing.T, got []time.Duration, most time.Duration) {
	t.Helper()
	least, longest := slices.Min(got), slices.Max(got)
	if len(got) < 100 || least < 10*time.Millisecond || longest > most || longest < most*3/4 {
		t.Errorf("%d pauses from %v to %v, want from 10ms to %v", len(got), least, longest, most)
	}
}

// failTwice returns two errors and then the usual reply, repeatedly.
func failTwice() func([]string) any {
	n := 0
	return func([]string) any {
		if n++; n%3 == 0 {
			return scripted.Usual
		}
		return errRefused
	}
}

func TestPausesBetweenFailedReadsDouble(t *testing.T) {
	t.Parallel()
	inBubble(t, &scripted.Group{Say: map[string]any{"xreadgroup": failTwice()}}, stream.SubscriberConfig{Consumer: "me", ClaimInterval: time.Hour}, func(t *testing.T, s subscribed) {
		time.Sleep(5 * time.Minute)
		first, second := pauses(s.Times("xreadgroup"))
		wantPauses(t, first, 50*time.Millisecond)
		wantPauses(t, second, 100*time.Millisecond)
	})
}

func TestPausesBetweenFailedRedeliveriesDouble(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0")}, Say: map[string]any{"fetch": failTwice()}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me"}, func(t *testing.T, s subscribed) {
		for range 200 {
			s.next(t).Nack(message.RetryAfter(errRefused, time.Second))
		}
		first, second := pauses(s.Times("fetch"))
		wantPauses(t, first, 60*time.Millisecond)
		wantPauses(t, second, 110*time.Millisecond)
	})
}

func TestPausesBetweenFailedDeadLettersDouble(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Say: map[string]any{"deadletter": failTwice()}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me", MaxDeliveries: 1}, func(t *testing.T, s subscribed) {
		for i := range 200 {
			answers.Change(func() { answers.Fresh = []any{scripted.Entry(fmt.Sprintf("%d-0", i+1))} })
			s.next(t).Nack(errRefused)
			time.Sleep(time.Second)
		}
		first, second := pauses(s.Times("deadletter"))
		wantPauses(t, first, 60*time.Millisecond)
		wantPauses(t, second, 110*time.Millisecond)
	})
}

func TestOwnEntriesAreReadAgainAfterAnError(t *testing.T) {
	t.Parallel()
	rows := []any{scripted.Pending("1-0", time.Hour, 1)}
	for name, say := range map[string]map[string]any{
		"no page": {"exec": scripted.InTurn(errRefused, []any{rows}, []any{[]any{}})}, "no entry": {"fetch": scripted.InTurn(errRefused, scripted.Usual)},
	} {
		answers := &scripted.Group{Own: rows, Say: say}
		inBubble(t, answers, stream.SubscriberConfig{}, func(t *testing.T, s subscribed) {
			if msg := s.next(t); msg.ID() != "1-0" {
				t.Errorf("%s: handed out %s", name, msg.ID())
			}
			if n := s.logs.Count("operation=read"); n < 1 {
				t.Errorf("%s: logged:\n%s", name, s.logs)
			}
		})
	}
}

func TestOwnEntriesThatAnotherClaimedFreeTheirPlaces(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Own: []any{scripted.Pending("1-0", time.Hour, 1), scripted.Pending("2-0", time.Hour, 1)}, Say: map[string]any{"fetch": []any{[]any{}, []any{1, []any{"data", "x"}}}}}
	inBubble(t, answers, stream.SubscriberConfig{BatchSize: 4, Consumer: "me"}, func(t *testing.T, s subscribed) {
		if msg := s.next(t); msg.ID() != "2-0" {
			t.Errorf("handed out %s", msg.ID())
		}
		synctest.Wait()
		if reads := s.Heard("xreadgroup"); reads[0].Cmd[5] != "3" {
			t.Errorf("read %s, want three", reads[0].Cmd[5])
		}
	})
}

func TestEntriesOfATakeoverWithALostReplyAreDelivered(t *testing.T) {
	t.Parallel()
	for failure, leaves := range map[error]bool{scripted.ErrCut: false, errRefused: true} {
		answers := &scripted.Group{All: []any{scripted.Pending("1-0", time.Hour, 1)}, Say: map[string]any{"takeover": failure}}
		inBubble(t, answers, stream.SubscriberConfig{}, func(t *testing.T, s subscribed) {
			synctest.Wait()
			answers.Change(func() {
				answers.Own, answers.All, answers.Say = answers.All, nil, nil
			})
			s.next(t).Ack()
			s.stop()
			if left := s.Heard("dismiss"); (len(left) > 0) != leaves {
				t.Errorf("after %v left by\n%s", failure, scripted.Words(left))
			}
		})
	}
}

func TestIdleEntriesOnTheSecondPageAreTakenOver(t *testing.T) {
	t.Parallel()
	page := make([]any, group.Page)
	for i := range page {
		page[i] = scripted.Pending(fmt.Sprintf("1-%d", i), 0, 1)
	}
	exec := scripted.InTurn([]any{[]any{}}, []any{page}, []any{[]any{scripted.Pending("2-0", time.Hour, 1)}}, []any{[]any{}})
	inBubble(t, &scripted.Group{Say: map[string]any{"exec": exec}}, stream.SubscriberConfig{Consumer: "me"}, func(t *testing.T, s subscribed) {
		if msg := s.next(t); msg.ID() != "2-0" || s.Heard("xpending")[2].Cmd[3] != "1-100" {
			t.Errorf("handed out %s", msg.ID())
		}
	})
}

// TestDeadLetterHasTheFirstDeliveryOfAnEarlierProcess checks that the first delivery is the one before the process began.
func TestDeadLetterHasTheFirstDeliveryOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Own: []any{scripted.Pending("1-0", 8*time.Second, 1)}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me", MaxDeliveries: 2}, func(t *testing.T, s subscribed) {
		msg := s.next(t)
		time.Sleep(3 * time.Second)
		msg.Nack(errRefused)
		synctest.Wait()
		if got := s.args(t, 7, "deadletter"); got[3] != "11000" || got[4] != "3000" {
			t.Errorf("moved to the dead letters by %v, want first and last 11 and 3 seconds ago", got)
		}
	})
}

func TestFailureAndRecoveryOfHeartbeatsAreLogged(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0")}, Say: map[string]any{"hold": scripted.InTurn(errRefused, scripted.Usual)}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me"}, func(t *testing.T, s subscribed) {
		s.next(t)
		time.Sleep(time.Minute)
		if n := s.logs.Count("operation=heartbeat"); n != 2 {
			t.Errorf("logged:\n%s", s.logs)
		}
	})
}

func TestRemovedConsumersAreCountedAndErrorsLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func([]string) any
		stats  int64
		lines  int
	}{
		"removed":  {scripted.InTurn(2, 3, 0), 5, 0},
		"refused":  {scripted.InTurn(errRefused, errRefused, 1), 1, 2},
		"no group": {scripted.InTurn(scripted.ErrNoGroup, 0), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, &scripted.Group{Say: map[string]any{"dismiss": c.answer}}, stream.SubscriberConfig{Consumer: "me", ClaimInterval: 10 * time.Second}, func(t *testing.T, s subscribed) {
				time.Sleep(25 * time.Second)
				if n := s.logs.Count("operation=dismiss"); n != c.lines || s.Stats().Dismissed != c.stats {
					t.Errorf("%+v:\n%s", s.Stats(), s.logs)
				}
			})
		})
	}
}

func TestConsumerWithUnreceivedMessagesLeavesItsGroup(t *testing.T) {
	t.Parallel()
	inBubble(t, &scripted.Group{Fresh: []any{scripted.Entry("1-0")}}, stream.SubscriberConfig{}, func(t *testing.T, s subscribed) {
		synctest.Wait()
		s.stop()
		if left := s.Heard("dismiss"); len(left) != 2 || left[1].Cmd[5] != "" {
			t.Errorf("left by\n%s", scripted.Words(left))
		}
	})
}

func TestSubscribeFailsWhileSubscribedAndWorksAfterAnError(t *testing.T) {
	t.Parallel()
	inBubble(t, &scripted.Group{}, stream.SubscriberConfig{}, func(t *testing.T, s subscribed) {
		if _, err := s.Subscribe(t.Context()); !errors.Is(err, stream.ErrSubscribed) {
			t.Errorf("error is %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		server := scripted.New((&scripted.Group{Say: map[string]any{"xgroup": scripted.InTurn(errRefused, scripted.Usual), "xrevrange": scripted.InTurn(errRefused, scripted.Usual)}}).Answer)
		sub, err := stream.NewSubscriber(server.Client(t), stream.SubscriberConfig{Stream: "s", Group: "g", StartID: "$"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for try := range 3 { // first the start position, then the group
			messages, err := sub.Subscribe(ctx)
			if (err == nil) != (try == 2) || err != nil && err.Error() == errRefused.Error() {
				t.Errorf("try %d: error is %v", try, err)
			}
			if err == nil {
				cancel()
				for range messages {
				}
			}
		}
	})
}
