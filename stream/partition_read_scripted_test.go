package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// fresh is the reply with new entries of a partition.
func fresh(ids ...string) any {
	var list []any
	for _, id := range ids {
		list = append(list, scripted.Entry(id))
	}
	return []any{"new", list}
}

// old is the reply with an entry that was delivered before.
func old(id string) any { return []any{"old", id, 2, []any{"data", "of " + id + " again"}} }

// none is the reply of a partition without entries.
var none = []any{"none", "9-0"}

func TestPausesBetweenFailedReadsOfAPartitionDouble(t *testing.T) {
	t.Parallel()
	inBubbleMember(t, 1, partitions(map[string]any{"partition": failTwiceThen(none)}), stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		time.Sleep(5 * time.Minute)
		first, second := pauses(s.Times("partition"))
		wantPauses(t, first, 50*time.Millisecond)
		wantPauses(t, second, 100*time.Millisecond)
	})
}

func failTwiceThen(answer any) func([]string) any {
	fails := failTwice()
	return func(cmd []string) any {
		if err := fails(cmd); err != scripted.Usual {
			return err
		}
		return answer
	}
}

func TestPausesBetweenFailedDeadLettersOfAPartitionDouble(t *testing.T) {
	t.Parallel()
	n := 0
	next := func([]string) any {
		n++
		return fresh(fmt.Sprintf("%d-0", n))
	}
	g := partitions(map[string]any{"partition": next, "deadletter": failTwice()})
	inBubbleMember(t, 1, g, stream.PartitionedConfig{SubscriberConfig: stream.SubscriberConfig{MaxDeliveries: 1}}, func(t *testing.T, s subscribed) {
		const messages = 200
		for range messages {
			s.next(t).Nack(errRefused)
		}
		time.Sleep(time.Second)
		first, second := pauses(s.Times("deadletter"))
		wantPauses(t, first, 50*time.Millisecond)
		wantPauses(t, second, 100*time.Millisecond)
		if n := s.logs.Count("operation=dead-letter"); n != 2*messages || s.logs.Count("entry dead-lettered") != messages {
			t.Errorf("%d lines of failures, and %d of dead letters", n, s.logs.Count("entry dead-lettered"))
		}
	})
}

func TestReasonOfADeadLetterOfAPartitionIsCutForItsLogToo(t *testing.T) {
	t.Parallel()
	g := partitions(map[string]any{"partition": scripted.InTurn(fresh("1-0"), none)})
	inBubbleMember(t, 1, g, stream.PartitionedConfig{SubscriberConfig: stream.SubscriberConfig{MaxDeliveries: 1}}, func(t *testing.T, s subscribed) {
		s.next(t).Nack(errors.New(strings.Repeat("x", 1025)))
		time.Sleep(time.Second)
		if text := s.logs.String(); !strings.Contains(text, strings.Repeat("x", 1024)) || strings.Contains(text, strings.Repeat("x", 1025)) {
			t.Errorf("logged:\n%s", text)
		}
	})
}

// TestFirstPauseOfAPartitionIsTheShortest checks the first pause of many members.
func TestFirstPauseOfAPartitionIsTheShortest(t *testing.T) {
	t.Parallel()
	for range 30 {
		inBubbleMember(t, 1, partitions(map[string]any{"partition": errRefused}), stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
			time.Sleep(time.Second)
			if at := s.Times("partition"); at[1] > 50*time.Millisecond {
				t.Errorf("read at %v", at)
			}
		})
	}
}

func TestFailureAndRecoveryOfReadsOfAPartitionAreLogged(t *testing.T) {
	t.Parallel()
	inBubbleMember(t, 1, partitions(map[string]any{"partition": scripted.InTurn(errRefused, errRefused, fresh("1-0"), none)}), stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		s.next(t).Ack()
		if n := s.logs.Count("operation=read"); n != 2 || s.logs.Count("subscriber recovered") != 1 {
			t.Errorf("logged:\n%s", s.logs)
		}
	})
}

func TestUnexpectedRepliesOfAPartitionAreErrors(t *testing.T) {
	t.Parallel()
	for says, c := range map[string]struct {
		command string
		answer  any
	}{
		"script partition: the reply is empty":       {"partition", []any{}},
		"script partition: new and nothing":          {"partition", []any{"new"}},
		`script partition: unexpected reply \"odd\"`: {"partition", []any{"odd", "1-0"}},
		"operation=read error=\"ERR no\"":            {"xread", errRefused},
	} {
		g := partitions(map[string]any{c.command: c.answer})
		inBubbleMember(t, 1, g, stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
			time.Sleep(time.Minute)
			if n := s.logs.Count("operation=read"); n != 1 || s.logs.Count(says) != 1 {
				t.Errorf("want %s, logged:\n%s", says, s.logs)
			}
			if n := len(s.Heard("partition")); n < 30 || n > 100 { // pauses of 2 s at most
				t.Errorf("%s: read %d times", says, n)
			}
		})
	}
}

func TestTrimmedEntryOfAPartitionIsReported(t *testing.T) {
	t.Parallel()
	inBubbleMember(t, 1, partitions(map[string]any{"partition": scripted.InTurn([]any{"trimmed", "1-0"}, fresh("2-0"), none)}), stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		if msg := s.next(t); msg.ID() != "2-0" || s.logs.Count("unacked entry trimmed") != 1 || s.logs.Count("entry=1-0") != 1 {
			t.Errorf("handed out %s:\n%s", msg.ID(), s.logs)
		} else {
			msg.Ack()
		}
	})
}

func TestReleasedMessageOfAPartitionIsReadAgainBeforeLaterOnes(t *testing.T) {
	t.Parallel()
	inBubbleMember(t, 1, partitions(map[string]any{"partition": scripted.InTurn(fresh("1-0", "2-0"), old("1-0"), fresh("2-0"), none)}), stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		s.next(t).Release()
		for _, want := range []string{"1-0", "2-0"} {
			msg := s.next(t)
			if msg.ID() != want {
				t.Errorf("handed out %s, want %s", msg.ID(), want)
			}
			msg.Ack()
		}
	})
}

func TestLeaseIsKeptAfterTheMessageThatTookTooLong(t *testing.T) {
	t.Parallel()
	g := partitions(map[string]any{"partition": scripted.InTurn(none, fresh("1-0"), none)}) // after a second
	cfg := stream.PartitionedConfig{SubscriberConfig: stream.SubscriberConfig{NoHeartbeat: true, MaxIdleTime: 10 * time.Second}}
	inBubbleMember(t, 1, g, cfg, func(t *testing.T, s subscribed) {
		msg := s.next(t)
		time.Sleep(19 * time.Second)
		if want := []string{"3s 0", "6s 0", "9s 0"}; !slices.Equal(s.bids("keep"), want) {
			t.Errorf("kept at %q, want %q", s.bids("keep"), want)
		}
		msg.Ack()
		time.Sleep(6 * time.Second)
		if want := []string{"3s 0", "6s 0", "9s 0", "21s 0", "24s 0"}; !slices.Equal(s.bids("keep"), want) {
			t.Errorf("kept at %q, want %q", s.bids("keep"), want)
		}
	})
}

func TestPartitionWithoutAConnectionToWaitOnIsReadTwentyTimesASecond(t *testing.T) {
	t.Parallel()
	g := partitions(map[string]any{"xread": scripted.Late(time.Hour, nil)})
	inBubbleMember(t, 2, g, stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		time.Sleep(time.Second - 1)
		want := []time.Duration{0}
		for i := range 20 {
			want = append(want, time.Duration(i)*50*time.Millisecond)
		}
		if got := s.Times("partition"); !slices.Equal(got, want) {
			t.Errorf("read at %v, want %v", got, want)
		}
	}, func(o *redis.Options) { o.PoolSize = 3 })
}

// inBubbleConsumePartition runs Consume of the only partition with a Processor.
func inBubbleConsumePartition(t *testing.T, answers func([]string) any, process func(ctx context.Context, msg *message.RawMessage) error, test func(t *testing.T, s subscribed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g, logs := partitions(map[string]any{"partition": answers}), &rig.Lines{}
		server := scripted.New(g.Answer, "lease", "members", "partition", "process")
		client := server.Client(t, patiently)
		sub, err := stream.NewPartitionedSubscriber(client, luatx.Partitions(1), stream.PartitionedConfig{
			SubscriberConfig: stream.SubscriberConfig{Stream: "s", Group: "g", Logger: logs.Logger()},
		})
		if err != nil {
			t.Fatal(err)
		}
		tr, err := luatx.New(client, luatx.Config{Namespace: "n", Logger: logs.Logger()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- sub.Consume(ctx, tr, stream.ProcessFunc(process)) }()
		test(t, subscribed{Server: server, logs: logs})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestMessageOfAPartitionWhoseProcessorFailsIsNacked(t *testing.T) {
	t.Parallel()
	var handled atomic.Int64
	process := func(_ context.Context, msg *message.RawMessage) error {
		if handled.Add(1) == 1 {
			return errRefused
		}
		msg.Ack()
		return nil
	}
	inBubbleConsumePartition(t, scripted.InTurn(fresh("1-0"), old("1-0"), none), process, func(t *testing.T, s subscribed) {
		time.Sleep(5 * time.Second)
		if n := handled.Load(); n != 2 || s.logs.Count(`message not handled" stream=`) != 1 || s.logs.Count(`id=1-0 error="ERR no"`) != 1 {
			t.Errorf("handled %d times:\n%s", n, s.logs)
		}
	})
}

func TestConsumeOfAPartitionWaitsForHandlersAndSettlements(t *testing.T) {
	t.Parallel()
	for name, process := range map[string]func(context.Context, *message.RawMessage) error{
		"a handler goes on after the ack": func(_ context.Context, msg *message.RawMessage) error {
			msg.Ack()
			<-time.After(time.Second)
			return nil
		},
		"the ack comes after the handler": func(_ context.Context, msg *message.RawMessage) error {
			time.AfterFunc(time.Second, func() { msg.Ack() })
			return nil
		},
	} {
		var ids []string
		var at []time.Duration
		began := time.Now()
		note := func(ctx context.Context, msg *message.RawMessage) error {
			if len(at) == 0 {
				began = time.Now()
			}
			ids, at = append(ids, msg.ID()), append(at, time.Since(began))
			return process(ctx, msg)
		}
		inBubbleConsumePartition(t, scripted.InTurn(fresh("1-0", "2-0"), none), note, func(t *testing.T, s subscribed) {
			time.Sleep(5 * time.Second)
			synctest.Wait() // the race detector then knows that the handlers have returned
			if !slices.Equal(ids, []string{"1-0", "2-0"}) || at[1] != time.Second {
				t.Errorf("%s: handled %q at %v", name, ids, at)
			}
		})
	}
}

func TestPartitionedPublisherReturnsTheErrorsOfAggregates(t *testing.T) {
	t.Parallel()
	client := scripted.New(func([]string) any { return 1 }).Client(t)
	fails := func(*message.RawMessage) (string, error) { return "a", errRefused }
	for says, c := range map[string]struct {
		aggregate func(*message.RawMessage) (string, error)
		subject   string
	}{
		"ERR no": {fails, "a"}, "it has no aggregate": {nil, ""}, "256": {nil, strings.Repeat("a", 257)},
	} {
		pub, err := stream.NewPartitionedPublisher(client, luatx.Partitions(2), stream.PublisherConfig{Stream: "s", Aggregate: c.aggregate})
		if err != nil {
			t.Fatal(err)
		}
		msg := message.NewRaw([]byte("x"), message.Attributes{"subject": c.subject, "type": "t", "source": "s", "id": "1"}, nil)
		if err := errors.Join(pub.Send(t.Context(), msg)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error is %v, want %q", err, says)
		}
	}
}

func TestKeyspaceMayHaveAPartitionPerSlot(t *testing.T) {
	t.Parallel()
	client := scripted.New(func([]string) any { return 1 }).Client(t)
	if _, err := stream.NewPartitionedPublisher(client, luatx.Partitions(16384), stream.PublisherConfig{Stream: "s"}); err != nil {
		t.Error(err)
	}
}
