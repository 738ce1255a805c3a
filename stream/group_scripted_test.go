package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

var errRefused = errors.New("ERR no")

// subscribed is a Subscriber in a bubble. It reads the stream s, and a scripted group replies.
type subscribed struct {
	*scripted.Server
	*stream.Subscriber
	messages <-chan *message.RawMessage
	logs     *rig.Lines
	stop     context.CancelFunc // ends the subscription, and waits for it
}

// inBubble runs a test with a subscriber, and ends it. BlockTimeout is long, because these tests do not depend on reads.
func inBubble(t *testing.T, answers *scripted.Group, cfg stream.SubscriberConfig, test func(t *testing.T, s subscribed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, logs := scripted.New(answers.Answer, append([]string{"trim"}, scripted.GroupScripts...)...), &rig.Lines{}
		cfg.Stream, cfg.Group, cfg.Logger = "s", "g", logs.Logger()
		sub, err := stream.NewSubscriber(server.Client(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		messages, err := sub.Subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s := subscribed{server, sub, messages, logs, func() {
			cancel()
			time.Sleep(10 * time.Second) // a read may take BlockTimeout
			if msg, open := <-messages; open {
				t.Errorf("%s is handed out at the end", msg.ID())
			}
		}}
		test(t, s)
		s.stop()
	})
}

func (s subscribed) next(t *testing.T) *message.RawMessage {
	t.Helper()
	select {
	case msg, open := <-s.messages:
		if open {
			return msg
		}
	case <-time.After(time.Hour):
	}
	t.Fatal("no message comes")
	return nil
}

// args returns the words after the first n of the only call of a command.
func (s subscribed) args(t *testing.T, n int, words ...string) []string {
	t.Helper()
	heard := s.Heard(words...)
	if len(heard) != 1 {
		t.Fatalf("%d calls of %v:\n%s", len(heard), words, scripted.Words(heard))
	}
	return heard[0].Cmd[n:]
}

func TestReadsAskForABatchAndEndBeforeTheNextClaim(t *testing.T) {
	t.Parallel()
	inBubble(t, &scripted.Group{}, stream.SubscriberConfig{MaxInFlight: 5, BatchSize: 3, BlockTimeout: 7 * time.Second, Consumer: "me", ClaimInterval: 20 * time.Second}, func(t *testing.T, s subscribed) {
		time.Sleep(30 * time.Second)
		want := strings.Join([]string{
			"0s xreadgroup group g me count 3 block 7000 streams s >",
			"7s xreadgroup group g me count 3 block 7000 streams s >",
			"14s xreadgroup group g me count 3 block 6000 streams s >", // until it is time to claim from others
			"20s xreadgroup group g me count 3 block 7000 streams s >",
			"27s xreadgroup group g me count 3 block 7000 streams s >",
		}, "\n")
		if got := scripted.Words(s.Heard("xreadgroup")); got != want {
			t.Errorf("read by\n%s\nwant\n%s", got, want)
		}
		if got, want := s.Times("dismiss"), []time.Duration{0, 20 * time.Second}; !slices.Equal(got, want) || s.Heard("dismiss")[0].Cmd[5] != "600000" {
			t.Errorf("others are looked at by\n%s", scripted.Words(s.Heard("dismiss")))
		}
	})
}

func TestFreePlacesBoundEachRead(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{}
	for i := range 9 {
		answers.Fresh = append(answers.Fresh, scripted.Entry(fmt.Sprintf("%d-0", i+1)))
	}
	inBubble(t, answers, stream.SubscriberConfig{MaxInFlight: 5, BatchSize: 3}, func(t *testing.T, s subscribed) {
		var list []*message.RawMessage
		for i := range 5 {
			msg := s.next(t)
			if msg.ID() != fmt.Sprintf("%d-0", i+1) || string(msg.Data) != "of "+msg.ID() {
				t.Errorf("%s: %s", msg.ID(), msg.Data)
			}
			list = append(list, msg)
		}
		synctest.Wait()
		counts := func() (list []string) {
			for _, h := range s.Heard("xreadgroup") {
				list = append(list, h.Cmd[5])
			}
			return list
		}
		if got := counts(); !slices.Equal(got, []string{"3", "2"}) {
			t.Errorf("read %v at a time, want 3 and 2", got)
		}
		list[3].Ack()
		synctest.Wait()
		if got := counts(); !slices.Equal(got, []string{"3", "2", "1"}) || len(s.messages) != 1 {
			t.Errorf("read %v at a time, %d messages", got, len(s.messages))
		}
	})
}

func TestSubscriberLooksForEntriesOfLostReplies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failure any
		looks   int
		leaves  bool
	}{
		"nothing was lost": {nil, 1, true},
		"a lost reply":     {scripted.InTurn(scripted.ErrCut, scripted.Usual), 2, false},
		"a refusal":        {scripted.InTurn(errRefused, scripted.Usual), 2, true},
		"a lost takeover":  {nil, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{Own: []any{scripted.Pending("1-0", 0, 1)}, Say: map[string]any{}}
			if c.failure != nil {
				answers.Say["xreadgroup"] = c.failure
			}
			inBubble(t, answers, stream.SubscriberConfig{}, func(t *testing.T, s subscribed) {
				if msg := s.next(t); string(msg.Data) != "of 1-0 again" {
					t.Errorf("%s", msg.Data)
				} else {
					defer msg.Ack()
				}
				answers.Change(func() { answers.Own = nil })
				time.Sleep(5 * time.Second)
				looks := 0
				for _, h := range s.Heard("xpending") {
					if len(h.Cmd) > 6 {
						looks++
					}
				}
				if looks != c.looks {
					t.Errorf("looked %d times, want %d", looks, c.looks)
				}
			})
		})
	}
}

func TestConsumerLeavesItsGroupAfterItsLastSettlement(t *testing.T) {
	t.Parallel()
	settle := map[string]func(*message.RawMessage){
		"acked": func(msg *message.RawMessage) { msg.Ack() }, "nacked": func(msg *message.RawMessage) { msg.Nack(errRefused) },
		"refused": func(msg *message.RawMessage) { msg.Nack(message.Permanent(errRefused)) }, "released": func(msg *message.RawMessage) { msg.Release() },
	}
	for how, end := range settle {
		for _, dead := range []string{"", "{s}:dead"} {
			t.Run(how+" "+dead, func(t *testing.T) {
				t.Parallel()
				answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0"), scripted.Entry("2-0")}}
				inBubble(t, answers, stream.SubscriberConfig{DeadLetter: dead}, func(t *testing.T, s subscribed) {
					one, two := s.next(t), s.next(t)
					s.stop()
					before := len(s.Heard("dismiss"))
					end(one)
					if n := len(s.Heard("dismiss")) - before; n > 0 {
						t.Errorf("left with a message in flight")
					}
					end(two)
					left := s.Heard("dismiss")[before:]
					if len(left) != 1 || left[0].Cmd[5] != "" {
						t.Errorf("left by\n%s", scripted.Words(left))
					}
				})
			})
		}
	}
	for name, c := range map[string]struct {
		consumer string
		failure  any
		leaves   bool
	}{
		"idle": {"", nil, true}, "named": {"me", nil, false},
		"after a lost reply": {"", scripted.InTurn(scripted.ErrCut, scripted.Usual), false}, "after a refusal": {"", scripted.InTurn(errRefused, scripted.Usual), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{Say: map[string]any{"xreadgroup": c.failure}}
			inBubble(t, answers, stream.SubscriberConfig{Consumer: c.consumer, ClaimInterval: time.Hour}, func(t *testing.T, s subscribed) {
				time.Sleep(5 * time.Second)
				answers.Change(func() { answers.Say = nil })
				s.stop()
				if n := len(s.Heard("dismiss")); (n == 2) != c.leaves {
					t.Errorf("left %d times:\n%s", n-1, scripted.Words(s.Heard("dismiss")))
				}
			})
		})
	}
}

func TestFailedRemovalOfAConsumerIsLogged(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{}
	inBubble(t, answers, stream.SubscriberConfig{}, func(t *testing.T, s subscribed) {
		synctest.Wait()
		answers.Change(func() { answers.Say = map[string]any{"dismiss": errRefused} })
		s.stop()
		if n := s.logs.Count("consumer not removed"); n != 1 {
			t.Errorf("%d lines warn:\n%s", n, s.logs)
		}
	})
}

func TestHeartbeatsAreSentInTimeAndRetriedAfterErrors(t *testing.T) {
	t.Parallel()
	const sec = time.Second
	for name, c := range map[string]struct {
		answer any
		off    bool
		want   []time.Duration
		errors int
	}{
		"kept":     {0, false, []time.Duration{20 * sec, 40 * sec, 60 * sec}, 0},
		"refused":  {errRefused, false, []time.Duration{20 * sec, 30 * sec, 40 * sec, 50 * sec, 60 * sec}, 1},
		"no group": {scripted.ErrNoGroup, false, []time.Duration{20 * sec, 30 * sec, 40 * sec, 50 * sec, 60 * sec}, 0},
		"none":     {0, true, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0")}, Say: map[string]any{"hold": c.answer}}
			inBubble(t, answers, stream.SubscriberConfig{NoHeartbeat: c.off, Consumer: "me", MaxIdleTime: time.Minute}, func(t *testing.T, s subscribed) {
				msg := s.next(t)
				time.Sleep(61 * sec)
				if got := s.Times("hold"); !slices.Equal(got, c.want) {
					t.Errorf("beats at %v, want at %v", got, c.want)
				}
				if held := s.Heard("hold"); len(held) > 0 && fmt.Sprint(held[0].Cmd) != "[hold 1 s g me 0 0 1-0]" {
					t.Errorf("beats by %v", held[0].Cmd)
				}
				if n := s.logs.Count("operation=heartbeat"); n != c.errors {
					t.Errorf("%d lines, want %d:\n%s", n, c.errors, s.logs)
				}
				msg.Ack()
				before := len(s.Heard("hold"))
				time.Sleep(time.Minute)
				if n := len(s.Heard("hold")) - before; n > 0 {
					t.Errorf("%d beats of a message that is settled", n)
				}
			})
		})
	}
}

func TestUnreceivedMessagesAreReturnedWhenSubscriptionEnds(t *testing.T) {
	t.Parallel()
	for warns, answer := range []any{0, errRefused} {
		answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0"), scripted.Entry("2-0"), scripted.Entry("3-0")}, Say: map[string]any{"hold": answer}}
		inBubble(t, answers, stream.SubscriberConfig{Consumer: "me"}, func(t *testing.T, s subscribed) {
			msg := s.next(t)
			synctest.Wait()
			s.stop()
			if got := s.args(t, 3, "hold"); fmt.Sprint(got) != "[g me 60000 1 2-0 3-0]" {
				t.Errorf("given back by %v", got)
			}
			if n := s.logs.Count("releasing entries failed"); n != warns {
				t.Errorf("%d lines warn:\n%s", n, s.logs)
			}
			msg.Ack()
		})
	}
}

func TestEndedSubscriptionOffersNackedEntriesWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0"), scripted.Entry("2-0"), scripted.Entry("3-0"), scripted.Entry("4-0")}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me"}, func(t *testing.T, s subscribed) {
		list := []*message.RawMessage{s.next(t), s.next(t), s.next(t), s.next(t)}
		list[0].Nack(message.RetryAfter(errRefused, 10*time.Second))
		list[1].Nack(message.RetryAfter(errRefused, 10*time.Second+30*time.Millisecond))
		list[2].Nack(message.RetryAfter(errRefused, time.Hour))
		s.stop()
		list[3].Nack(message.RetryAfter(errRefused, 20*time.Second)) // after the end
		var got []string
		for _, h := range s.Heard("hold") {
			got = append(got, strings.Join(h.Cmd[5:], " "))
		}
		slices.Sort(got)
		took := s.Heard("hold")[0].At // up to BlockTimeout, 1 s
		want := []string{"0 0 3-0", "40000 0 4-0", fmt.Sprint((50*time.Second + took).Milliseconds(), " 0 1-0"), fmt.Sprint((49900*time.Millisecond + took).Milliseconds(), " 0 2-0")}
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("offered %q after %v, want %q", got, took, want)
		}
	})
}

func TestOthersAreRemovedAfterTenTimesTheLongestInterval(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]stream.SubscriberConfig{
		"600000":  {MaxIdleTime: time.Minute, ClaimInterval: 20 * time.Second},
		"1200000": {MaxIdleTime: time.Minute, ClaimInterval: 2 * time.Minute},
		"900000":  {MaxIdleTime: time.Minute, ClaimInterval: time.Second, BlockTimeout: 90 * time.Second},
	} {
		cfg.Consumer = "me"
		inBubble(t, &scripted.Group{}, cfg, func(t *testing.T, s subscribed) {
			synctest.Wait()
			if got := s.args(t, 5, "dismiss"); got[0] != want {
				t.Errorf("others are removed after %s ms, want %s", got[0], want)
			}
		})
	}
}

func TestDelaysOfAMessageThatIsNackedAgainAndAgainDouble(t *testing.T) {
	t.Parallel()
	backoff := message.Backoff{Base: time.Millisecond, Max: time.Hour}
	inBubble(t, &scripted.Group{Fresh: []any{scripted.Entry("1-0")}}, stream.SubscriberConfig{Consumer: "me", NackBackoff: backoff}, func(t *testing.T, s subscribed) {
		wantDoubling(t, func() { s.next(t).Nack(errRefused) })
		s.next(t).Ack()
	})
}

// wantDoubling nacks a message 20 times. Random delays that double from 1 ms on add up to minutes, others to 200 ms at most.
func wantDoubling(t *testing.T, nack func()) {
	t.Helper()
	began := time.Now()
	for range 20 {
		nack()
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("20 deliveries took %v", took)
	}
}
