package stream_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/scripted"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func TestPausesBetweenFailedReadsGrowToTwoSeconds(t *testing.T) {
	t.Parallel()
	inBubble(t, &scripted.Group{Say: map[string]any{"xreadgroup": errRefused}}, stream.SubscriberConfig{Consumer: "me", ClaimInterval: time.Hour}, func(t *testing.T, s subscribed) {
		time.Sleep(5 * time.Minute)
		var got []time.Duration
		for i, at := range s.Times("xreadgroup") {
			if i > 10 {
				got = append(got, at-s.Times("xreadgroup")[i-1])
			}
		}
		wantPauses(t, got, 2*time.Second)
	})
}

// TestFirstPausesOfASubscriberAreTheShortest checks the first pause of many subscribers.
func TestFirstPausesOfASubscriberAreTheShortest(t *testing.T) {
	t.Parallel()
	for range 30 {
		answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0")}, Say: map[string]any{"fetch": errRefused, "xreadgroup": scripted.InTurn(scripted.Usual, errRefused)}}
		inBubble(t, answers, stream.SubscriberConfig{Consumer: "me", ClaimInterval: time.Hour}, func(t *testing.T, s subscribed) {
			s.next(t).Nack(message.RetryAfter(errRefused, time.Second))
			time.Sleep(3 * time.Second)
			if at := s.Times("xreadgroup"); at[2]-at[1] > 50*time.Millisecond {
				t.Errorf("read at %v", at)
			}
			if at := s.Times("fetch"); at[1]-at[0] > 60*time.Millisecond {
				t.Errorf("read again at %v", at)
			}
		})
		inBubble(t, &scripted.Group{Say: map[string]any{"xreadgroup": errRefused}}, stream.SubscriberConfig{Consumer: "me", ClaimInterval: time.Hour}, func(t *testing.T, s subscribed) {
			time.Sleep(time.Second)
			if at := s.Times("xreadgroup"); at[1] > 50*time.Millisecond {
				t.Errorf("read at %v", at)
			}
		})
	}
}

func TestReadsWaitForTenMillisecondsAtLeast(t *testing.T) {
	t.Parallel()
	inBubble(t, &scripted.Group{}, stream.SubscriberConfig{BlockTimeout: 3333 * time.Millisecond, Consumer: "me", ClaimInterval: 10 * time.Second}, func(t *testing.T, s subscribed) {
		time.Sleep(11 * time.Second)
		want := []string{"0s 3333", "3.333s 3333", "6.666s 3333", "9.999s 10", "10.009s 3333"}
		var got []string
		for _, h := range s.Heard("xreadgroup") {
			got = append(got, fmt.Sprint(h.At, " ", h.Cmd[7]))
		}
		if !slices.Equal(got, want) {
			t.Errorf("reads wait for %q, want %q", got, want)
		}
	})
}

func TestOwnEntriesAreFetchedInBatches(t *testing.T) {
	t.Parallel()
	var rows []any
	for i := range 5 {
		rows = append(rows, scripted.Pending(fmt.Sprintf("%d-0", i+1), time.Hour, 1))
	}
	inBubble(t, &scripted.Group{Own: rows}, stream.SubscriberConfig{BatchSize: 2, MaxInFlight: 9, Consumer: "me"}, func(t *testing.T, s subscribed) {
		for i := range 5 {
			if msg := s.next(t); msg.ID() != fmt.Sprintf("%d-0", i+1) {
				t.Errorf("handed out %s", msg.ID())
			}
		}
		var got []string
		for _, h := range s.Heard("fetch") {
			got = append(got, strings.Join(h.Cmd[5:], " "))
		}
		if want := []string{"1-0 2-0", "3-0 4-0", "5-0"}; !slices.Equal(got, want) {
			t.Errorf("read %q, want %q", got, want)
		}
	})
}

// TestEntriesWaitForDecodedBytesForTenMillisecondsAtLeast checks the random pauses of many entries.
func TestEntriesWaitForDecodedBytesForTenMillisecondsAtLeast(t *testing.T) {
	t.Parallel()
	packed, err := stream.Gzip{}.Encode([]byte(strings.Repeat("x", 5000)), message.Attributes{})
	if err != nil {
		t.Fatal(err)
	}
	answers := &scripted.Group{}
	for i := range 50 {
		answers.Fresh = append(answers.Fresh, []any{fmt.Sprintf("%d-0", i+1), []any{"ce_specversion", "1.0", "ce_dataencoding", "gzip", "data", string(packed)}})
	}
	cfg := stream.SubscriberConfig{Codecs: []stream.Codec{stream.Gzip{}}, MaxDecodedBytes: 1, MaxInFlight: 200, BatchSize: 50, Consumer: "me"}
	inBubble(t, answers, cfg, func(t *testing.T, s subscribed) {
		s.next(t)
		time.Sleep(time.Second)
		if at := s.Times("fetch"); len(at) == 0 || at[0] < 10*time.Millisecond {
			t.Errorf("read again at %v", at)
		}
	})
}

func TestAckThatFailedForTheLastTimeReturnsAtOnce(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0")}, Say: map[string]any{"xack": errRefused}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me"}, func(t *testing.T, s subscribed) {
		msg, began := s.next(t), time.Now()
		msg.Ack()
		at := s.Times("xack")
		if took := time.Since(began); took != at[len(at)-1]-at[0] {
			t.Errorf("it took %v, with attempts at %v", took, at)
		}
	})
}

func TestConsumersAreNamedAfterTheirHost(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	inBubble(t, &scripted.Group{}, stream.SubscriberConfig{}, func(t *testing.T, s subscribed) {
		synctest.Wait()
		if name, want := s.Heard("xreadgroup")[0].Cmd[3], fmt.Sprintf("%s-%d-", host, os.Getpid()); !strings.HasPrefix(name, want) {
			t.Errorf("the consumer is %s, want %s and random letters", name, want)
		}
	})
}

func TestWarningAboutUnreleasedEntriesSaysHowManyAndWhy(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0"), scripted.Entry("2-0"), scripted.Entry("3-0")}, Say: map[string]any{"hold": errRefused}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me"}, func(t *testing.T, s subscribed) {
		s.next(t).Ack()
		s.stop()
		if n := s.logs.Count(`releasing entries failed" stream=s group=g entries=2 error="ERR no"`); n != 1 {
			t.Errorf("logged:\n%s", s.logs)
		}
	})
}

func TestSubscriptionEndsAfterItsHeartbeat(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Fresh: []any{scripted.Entry("1-0"), scripted.Entry("2-0")}, Say: map[string]any{"hold": scripted.Late(2500*time.Millisecond, 0)}}
	inBubble(t, answers, stream.SubscriberConfig{Consumer: "me", MaxIdleTime: time.Minute}, func(t *testing.T, s subscribed) {
		s.next(t)
		time.Sleep(20*time.Second + time.Millisecond) // a heartbeat is under way
		s.stop()
		if at := s.Times("hold"); len(at) != 2 || at[1] < at[0]+2500*time.Millisecond {
			t.Errorf("entries are held at %v, want the second after the reply to the first", at)
		}
	})
}
