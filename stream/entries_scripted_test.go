package stream_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/scripted"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func TestIdleEntriesAreTakenOverUpToTheFreePlaces(t *testing.T) {
	t.Parallel()
	const idle = time.Minute
	for name, c := range map[string]struct {
		all  []any
		want []string // of each takeover
	}{
		"none":                {nil, nil},
		"those that are idle": {[]any{scripted.Pending("1-0", idle, 1), scripted.Pending("2-0", idle-time.Millisecond, 1), scripted.Pending("3-0", time.Hour, 1)}, []string{"1-0 3-0"}},
		"as there are places": {[]any{scripted.Pending("1-0", idle, 1), scripted.Pending("2-0", idle, 1), scripted.Pending("3-0", idle, 1), scripted.Pending("4-0", idle, 1)}, []string{"1-0 2-0 3-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, &scripted.Group{All: c.all}, stream.SubscriberConfig{MaxInFlight: 3, Consumer: "me"}, func(t *testing.T, s subscribed) {
				synctest.Wait()
				var got []string
				for _, h := range s.Heard("takeover") {
					got = append(got, strings.Join(h.Cmd[7:], " "))
					if fmt.Sprint(h.Cmd[:7]) != "[takeover 2 s {s}:taken g me 60000]" {
						t.Errorf("taken over by %v", h.Cmd)
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("took over %q, want %q", got, c.want)
				}
				n := 0
				if len(c.want) > 0 {
					n = len(strings.Fields(c.want[0]))
				}
				if stats := s.Stats(); stats.Claimed != int64(n) || len(s.messages) != n {
					t.Errorf("%d messages, %+v", len(s.messages), stats)
				}
				time.Sleep(35 * time.Second) // entries in flight are not taken over again
				if more := len(s.Heard("takeover")) - len(got); more > 0 && n < 3 {
					t.Errorf("took over %d times more", more)
				}
			})
		})
	}
}

func TestDecodedBytesUpToTheBoundAreInFlight(t *testing.T) {
	t.Parallel()
	const each = 5000
	packed, err := stream.Gzip{}.Encode([]byte(strings.Repeat("x", each)), message.Attributes{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		encoding string
		bound    int64
		want     int
	}{
		"exactly the bound":         {"gzip", 2 * each, 2},
		"a byte beyond":             {"gzip", 2*each - 1, 1},
		"one that exceeds it alone": {"gzip", each - 1, 1},
		"data that no codec packed": {"", 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{}
			for _, id := range []string{"1-0", "2-0", "3-0"} {
				answers.Fresh = append(answers.Fresh, []any{id, []any{"ce_specversion", "1.0", "ce_dataencoding", c.encoding, "data", string(packed)}})
			}
			inBubble(t, answers, stream.SubscriberConfig{Codecs: []stream.Codec{stream.Gzip{}}, MaxDecodedBytes: c.bound}, func(t *testing.T, s subscribed) {
				synctest.Wait()
				if n := len(s.messages); n != c.want {
					t.Errorf("%d messages are in flight, want %d", n, c.want)
				}
			})
		})
	}
}

func TestEntriesThatOthersTookFirstFreeTheirPlaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		claimed []any
		found   any // other entries in the stream
		trimmed int64
		errors  int
		places  int // left of three
	}{
		"all are here":    {[]any{"1-0", "2-0"}, []any{}, 0, 0, 1},
		"one was trimmed": {[]any{"1-0"}, []any{}, 1, 0, 2},
		"one is acked":    {[]any{"1-0"}, []any{scripted.Entry("2-0")}, 0, 0, 2},
		"none is left":    {[]any{}, []any{}, 2, 0, 3},
		"no answer":       {[]any{"1-0"}, errRefused, 0, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{
				All: []any{scripted.Pending("1-0", time.Hour, 1), scripted.Pending("2-0", time.Hour, 1)},
				Say: map[string]any{"takeover": scripted.InTurn(c.claimed, []any{}), "xrange": c.found},
			}
			inBubble(t, answers, stream.SubscriberConfig{MaxInFlight: 3, BatchSize: 9}, func(t *testing.T, s subscribed) {
				synctest.Wait()
				if stats := s.Stats(); stats.Trimmed != c.trimmed || stats.Claimed != int64(len(c.claimed)) || len(s.messages) != len(c.claimed) {
					t.Errorf("%d messages, %+v", len(s.messages), stats)
				}
				if n := s.logs.Count("operation=claim"); n != c.errors || s.logs.Count("unacked entry trimmed") != int(c.trimmed) {
					t.Errorf("logged:\n%s", s.logs)
				}
				reads := s.Heard("xreadgroup")
				if n := reads[len(reads)-1].Cmd[5]; n != fmt.Sprint(c.places) {
					t.Errorf("read %s, want %d", n, c.places)
				}
			})
		})
	}
}

func TestFailedTakeoverDoesNotStopReading(t *testing.T) {
	t.Parallel()
	for name, say := range map[string]map[string]any{
		"takeover": {"takeover": errRefused}, "fetch": {"fetch": errRefused}, "page": {"exec": scripted.InTurn([]any{[]any{}}, errRefused)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{All: []any{scripted.Pending("1-0", time.Hour, 1)}, Fresh: []any{scripted.Entry("9-0")}, Say: say}
			inBubble(t, answers, stream.SubscriberConfig{MaxInFlight: 3, BatchSize: 9}, func(t *testing.T, s subscribed) {
				if msg := s.next(t); msg.ID() != "9-0" {
					t.Errorf("handed out %s, want what is new", msg.ID())
				}
				if n := s.logs.Count("operation=claim"); n != 1 || len(s.Heard("dismiss")) > 0 {
					t.Errorf("logged:\n%s", s.logs)
				}
				synctest.Wait()
				if reads := s.Heard("xreadgroup"); reads[0].Cmd[5] != "3" {
					t.Errorf("read %s, want as many as there are places", reads[0].Cmd[5])
				}
				answers.Change(func() { answers.Say, answers.All = nil, nil })
				time.Sleep(31 * time.Second)
				if n := s.logs.Count(`subscriber recovered" stream=s group=g operation=claim`); n != 1 || len(s.Heard("dismiss")) != 1 {
					t.Errorf("logged:\n%s", s.logs)
				}
			})
		})
	}
}

func TestEntriesWithoutDeliveriesLeftBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Own: []any{scripted.Pending("1-0", 7*time.Second, 3), scripted.Pending("2-0", 8*time.Second, 2)}}
	inBubble(t, answers, stream.SubscriberConfig{MaxDeliveries: 3, Consumer: "me", BatchSize: 3}, func(t *testing.T, s subscribed) {
		if msg := s.next(t); msg.ID() != "2-0" {
			t.Errorf("handed out %s", msg.ID())
		}
		want := "[deadletter 3 s {s}:dead {s}:taken g me 1-0 delivered 3 times and never settled: its consumer died, hung or lost it other 7000 7000]"
		if got := s.args(t, 0, "deadletter"); fmt.Sprint(got) != want {
			t.Errorf("moved to the dead letters by %v", got)
		}
		if stats := s.Stats(); stats.DeadLettered != 1 || stats.Delivered != 1 || s.logs.Count(`entry dead-lettered" stream=s group=g entry=1-0 deliveries=3 dead_letter={s}:dead`) != 1 {
			t.Errorf("%+v, logged:\n%s", stats, s.logs)
		}
		synctest.Wait()
		if reads := s.Heard("xreadgroup"); reads[0].Cmd[5] != "2" {
			t.Errorf("read %s, want as many as there are places", reads[0].Cmd[5])
		}
	})
}

func TestAcksAreRetriedAFewTimes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer any
		script bool
		tries  int
		failed int64
		least  time.Duration
	}{
		"taken":              {1, false, 1, 0, 0},
		"pending for nobody": {0, false, 1, 0, 0},
		"deleted":            {1, true, 1, 0, 0},
		"at last":            {scripted.InTurn(errRefused, errRefused, 1), false, 3, 0, 0},
		"never":              {errRefused, false, 3, 1, 0},
		"never deleted":      {errRefused, true, 3, 1, 0},
		"no reply":           {scripted.Late(time.Hour, 0), false, 1, 1, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := map[bool]string{true: "acknowledge", false: "xack"}[c.script]
			answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0")}, Say: map[string]any{command: c.answer}}
			inBubble(t, answers, stream.SubscriberConfig{DeleteAcked: c.script, Consumer: "me"}, func(t *testing.T, s subscribed) {
				msg := s.next(t)
				s.stop() // acks work after the end
				began := time.Now()
				msg.Ack()
				if took := time.Since(began); took < c.least || took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
				if n := len(s.Heard(command)); n != c.tries || s.Stats().AckFailed != c.failed || s.logs.Count("ack failed") != int(c.failed) {
					t.Errorf("tried %d times, want %d, %+v:\n%s", n, c.tries, s.Stats(), s.logs)
				}
			})
		})
	}
}

func TestNackedEntriesAreReadAgainAfterTheirDelay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fetch       any
		redelivered int64
		tries       int
	}{
		"theirs still":   {scripted.Usual, 1, 1},
		"another's":      {[]any{[]any{}}, 0, 1},
		"after an error": {scripted.InTurn(errRefused, errRefused, scripted.Usual), 1, 3},
		"trimmed":        {[]any{[]any{2, nil}}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0")}, Say: map[string]any{"fetch": c.fetch}}
			inBubble(t, answers, stream.SubscriberConfig{Consumer: "me", MaxInFlight: 1}, func(t *testing.T, s subscribed) {
				s.next(t).Nack(message.RetryAfter(errRefused, 10*time.Second))
				time.Sleep(20 * time.Second)
				if at := s.Times("fetch"); len(at) != c.tries || at[0] != 10*time.Second {
					t.Errorf("read again at %v", at)
				}
				if stats := s.Stats(); stats.Redelivered != c.redelivered {
					t.Errorf("%+v", stats)
				}
				if n := len(s.messages); (n == 1) != (c.redelivered == 1 && name != "trimmed") {
					t.Errorf("%d messages", n)
				}
				if n := s.logs.Count("operation=redeliver"); n != min(2*(c.tries-1), 2) {
					t.Errorf("logged:\n%s", s.logs)
				}
				if name == "trimmed" && (s.Stats().Trimmed != 1 || len(s.Heard("xack")) != 1) {
					t.Errorf("%+v", s.Stats())
				}
				if n := len(s.messages); n == 0 { // its place is released
					answers.Change(func() { answers.Fresh = []any{scripted.Entry("2-0")} })
					s.next(t)
				}
			})
		})
	}
}

func TestEntryNackedMaxDeliveriesTimesBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	inBubble(t, &scripted.Group{Fresh: []any{scripted.Entry("1-0")}}, stream.SubscriberConfig{Consumer: "me", MaxDeliveries: 2}, func(t *testing.T, s subscribed) {
		s.next(t).Nack(errRefused)
		msg := s.next(t) // its second delivery, according to the server
		time.Sleep(3 * time.Second)
		if n := len(s.Heard("deadletter")); n > 0 {
			t.Errorf("moved to the dead letters after one delivery")
		}
		msg.Nack(errors.New("the last one"))
		synctest.Wait()
		if got := s.args(t, 7, "deadletter"); got[0] != "1-0" || got[1] != "the last one" || got[2] != "me" || got[4] != "3000" {
			t.Errorf("moved to the dead letters by %v", got)
		}
	})
}

func TestDeadLetterIsRetriedUntilItIsWritten(t *testing.T) {
	t.Parallel()
	for outcome, c := range map[string]struct{ moved, trimmed int64 }{"moved": {1, 0}, "trimmed": {0, 1}, "lost": {0, 0}} {
		answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0")}, Say: map[string]any{"deadletter": scripted.InTurn(errRefused, errRefused, []any{outcome})}}
		inBubble(t, answers, stream.SubscriberConfig{Consumer: "me", MaxDeliveries: 1, MaxInFlight: 1}, func(t *testing.T, s subscribed) {
			s.next(t).Nack(errors.New("the reason"))
			time.Sleep(10 * time.Second)
			heard := s.Heard("deadletter")
			if len(heard) != 3 || heard[2].Cmd[8] != "the reason" || len(s.Heard("fetch")) > 0 || len(s.messages) > 0 {
				t.Errorf("%s: buried by\n%s", outcome, scripted.Words(heard))
			}
			if stats := s.Stats(); stats.DeadLettered != c.moved || stats.Trimmed != c.trimmed || s.logs.Count("operation=dead-letter") != 2 {
				t.Errorf("%s: %+v:\n%s", outcome, stats, s.logs)
			}
			answers.Change(func() { answers.Fresh = []any{scripted.Entry("2-0")} })
			s.next(t)
		})
	}
}

func TestUndecodableEntryIsTakenOverOnlyAfterMaxIdleTime(t *testing.T) {
	t.Parallel()
	refuse := func(id string, values map[string]any) (*message.RawMessage, error) {
		if id == "1-0" {
			return nil, errRefused
		}
		return stream.Unmarshal(id, values)
	}
	answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0")}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me", Unmarshal: refuse, MaxInFlight: 1, ClaimInterval: 7 * time.Second, MaxIdleTime: 30 * time.Second}, func(t *testing.T, s subscribed) {
		synctest.Wait()
		if stats := s.Stats(); stats.Malformed != 1 || stats.Delivered != 0 || s.logs.Count("entry not decoded") != 1 {
			t.Errorf("%+v:\n%s", stats, s.logs)
		}
		answers.Change(func() { answers.All = []any{scripted.Pending("1-0", time.Hour, 1)} })
		time.Sleep(29 * time.Second)
		if n := len(s.Heard("takeover")); n > 0 {
			t.Error("it is taken over before MaxIdleTime")
		}
		time.Sleep(7 * time.Second)
		if at := s.Times("takeover"); len(at) != 1 || at[0] != 35*time.Second {
			t.Errorf("taken over at %v", at)
		}
		if len(s.Heard("hold")) > 0 {
			t.Error("there is a heartbeat for it")
		}
	})
	inBubble(t, &scripted.Group{Fresh: []any{scripted.Entry("1-0"), scripted.Entry("2-0")}}, stream.SubscriberConfig{Consumer: "me", Unmarshal: refuse, DeadLetter: "{s}:dead"}, func(t *testing.T, s subscribed) {
		s.next(t)
		if got := s.args(t, 7, "deadletter"); got[0] != "1-0" || got[1] != "ERR no" || s.Stats().Malformed != 1 {
			t.Errorf("moved to the dead letters by %v", got)
		}
	})
}

func TestRefusedMessageStaysPendingUntilMaxIdleTime(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0")}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me", MaxInFlight: 1, ClaimInterval: 7 * time.Second, MaxIdleTime: 30 * time.Second}, func(t *testing.T, s subscribed) {
		s.next(t).Nack(message.Permanent(errRefused))
		answers.Change(func() { answers.All = []any{scripted.Pending("1-0", time.Hour, 1)} })
		time.Sleep(36 * time.Second)
		if at := s.Times("takeover"); len(at) != 1 || at[0] != 35*time.Second || s.logs.Count("message refused") != 1 {
			t.Errorf("taken over at %v:\n%s", at, s.logs)
		}
	})
}

func TestMissingGroupIsCreatedAgainAtItsFirstPosition(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Say: map[string]any{"xreadgroup": scripted.InTurn(scripted.ErrNoGroup, scripted.Usual)}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me", StartID: "$"}, func(t *testing.T, s subscribed) {
		time.Sleep(5 * time.Second)
		if got := scripted.Words(s.Heard("xgroup")); strings.Count(got, "xgroup create s g 5-1 mkstream") != 2 || s.logs.Count("group created again") != 1 {
			t.Errorf("made by\n%s\n%s", got, s.logs)
		}
		answers.Change(func() {
			answers.Say = map[string]any{"xreadgroup": scripted.InTurn(scripted.ErrNoGroup, scripted.Usual), "xgroup": errRefused}
		})
		time.Sleep(5 * time.Second)
		if n := s.logs.Count("operation=read"); n != 2 || s.logs.Count("group created again") != 1 {
			t.Errorf("logged:\n%s", s.logs)
		}
		answers.Change(func() {
			answers.Say = map[string]any{"xreadgroup": scripted.InTurn(scripted.ErrNoGroup, scripted.Usual), "xgroup": errors.New("BUSYGROUP")}
		})
		time.Sleep(5 * time.Second)
		if s.logs.Count("group created again") != 1 {
			t.Errorf("logged:\n%s", s.logs)
		}
	})
}

func TestSubscriberTrimsEveryClaimIntervalDespiteErrors(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Say: map[string]any{"trim": scripted.InTurn(errRefused, errRefused, 3)}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me", TrimAcked: true, ClaimInterval: 10 * time.Second}, func(t *testing.T, s subscribed) {
		time.Sleep(25 * time.Second)
		if got := s.Heard("trim"); len(got) != 3 || fmt.Sprint(got[0].Cmd) != "[trim 1 s ~]" || got[2].At != 20*time.Second || s.logs.Count("operation=trim") != 2 {
			t.Errorf("trimmed by\n%s\n%s", scripted.Words(got), s.logs)
		}
	})
}
