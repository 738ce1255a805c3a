package trigger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	streams "github.com/luatx/luatx/stream"
	"github.com/luatx/luatx/trigger"
)

func TestTriggerWithoutGroupStartsAtLastIDAndContinuesAtLastIDKey(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStream(t, client)
		run := func(lastID, key string) (*started, *effects) {
			done := &effects{}
			cfg := s.config(func(_ context.Context, msg *message.RawMessage) error {
				if _, ok := msg.InputSource(); ok {
					t.Error("an entry that is pending nowhere has a source")
				}
				done.add(text(t, msg))
				return nil
			})
			cfg.Group, cfg.LastID, cfg.LastIDKey = "", lastID, key
			return begin(t, cfg), done
		}
		s.add(1, 3)
		fromNow, now := run("", "")
		fromBegin, all := run("0", "")
		keeping, kept := run("0", s.key+":last")
		wantEffects(t, all, numbers(1, 3))
		wantEffects(t, kept, numbers(1, 3))
		s.add(4, 5)
		wantEffects(t, now, numbers(4, 5))
		wantEffects(t, all, numbers(1, 5))
		wantEffects(t, kept, numbers(1, 5))
		keeping.stop()
		fromNow.stop()
		fromBegin.stop()
		s.add(6, 7)
		_, kept = run("0", s.key+":last")
		wantEffects(t, kept, numbers(6, 7))
	})
}

func TestTriggerWithoutGroupRunsItsFirstEntryAgainAfterARestart(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, begun := newStream(t, client), &effects{}
		s.add(1, 1)
		cfg := s.config(func(ctx context.Context, msg *message.RawMessage) error {
			begun.add(text(t, msg))
			<-ctx.Done()
			return ctx.Err()
		})
		cfg.Group, cfg.LastID, cfg.LastIDKey, cfg.ShutdownTimeout = "", "$", s.key+":last", time.Millisecond
		first := begin(t, cfg)
		s.add(2, 2)
		wantEffects(t, begun, []string{"2"})
		first.stop()
		s.add(3, 3)
		done := &effects{}
		cfg.Run = done.of(t)
		begin(t, cfg)
		wantEffects(t, done, []string{"2", "3"})
	})
}

func TestTriggerWithoutGroupRetriesThenDeadLettersAndKeepsItsPosition(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, done := newStream(t, client), &effects{}
		s.add(1, 4)
		open := make(chan struct{})
		cfg := s.config(func(ctx context.Context, msg *message.RawMessage) error {
			data := text(t, msg)
			if data == "2" {
				select {
				case <-open:
					done.add("2")
					return errors.New("bad")
				case <-ctx.Done():
				}
			}
			done.add(data)
			return nil
		})
		cfg.Group, cfg.LastID, cfg.LastIDKey, cfg.Concurrency, cfg.MaxDeliveries = "", "0", s.key+":last", 2, 3
		tr := begin(t, cfg)
		wantEffects(t, done, []string{"1", "3", "4"})
		first, err := client.XRange(t.Context(), s.key, "-", "+").Result()
		redistest.Must(t, err)
		redistest.Eventually(t, "all to be acked", func() bool { return tr.Stats().Acked == 3 })
		if last := client.Get(t.Context(), s.key+":last").Val(); last != first[0].ID {
			t.Errorf("the position is %s, want that of the first entry, %s", last, first[0].ID)
		}
		close(open)
		redistest.Eventually(t, "a dead letter", func() bool { return tr.Stats().DeadLettered == 1 })
		wantEffects(t, done, []string{"1", "3", "4", "2", "2", "2"})
		if last := client.Get(t.Context(), s.key+":last").Val(); last != first[3].ID {
			t.Errorf("the position is %s, want that of the last entry, %s", last, first[3].ID)
		}
		letters := 0
		for letter, err := range streams.DeadLetters(t.Context(), client, streams.DeadLetterKey(s.key)) {
			if err != nil || letter.Reason != "bad" || letter.Deliveries != 3 || letter.Stream != s.key || letter.Values["data"] != "2" {
				t.Errorf("%+v, %v", letter, err)
			}
			letters++
		}
		if letters != 1 {
			t.Errorf("%d dead letters", letters)
		}
	})
}

func TestTriggerWithoutGroupRunsEachEntryOnceIfConnectionsBreak(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	s, done := newStream(t, server.Client(t)), &effects{}
	cfg := s.config(done.of(t))
	cfg.Group, cfg.Connector = "", trigger.Connector{URL: "redis://" + proxy.Addr()}
	begin(t, cfg)
	const cuts = 20
	for n := range cuts {
		s.add(n*10+1, n*10+10)
		proxy.CutAll()
	}
	wantEffects(t, done, numbers(1, cuts*10))
}

func TestTriggerRejectsLastIDKeyWithoutAnEntryID(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := newStream(t, client)
	redistest.Must(t, client.Set(t.Context(), s.key+":last", "rubbish", time.Minute).Err())
	cfg := s.config(func(context.Context, *message.RawMessage) error { return nil })
	cfg.Group, cfg.LastIDKey = "", s.key+":last"
	wantBuildFailed(t, cfg, "LastIDKey", trigger.ErrOption)
}

// wantBuildFailed runs a trigger that cannot start, and returns its error.
func wantBuildFailed(t testing.TB, cfg trigger.Config, option string, kind error) string {
	t.Helper()
	s := start(t, cfg)
	redistest.Eventually(t, "the trigger to give up", func() bool { return s.Health().State.Final() })
	h := s.Health()
	wrong, ok := errors.AsType[*trigger.OptionError](h.LastError)
	if h.State != trigger.BuildFailed || !ok || wrong.Option != option || !errors.Is(h.LastError, kind) {
		t.Errorf("%s: %v; want option %s, %v", h.State, h.LastError, option, kind)
	}
	s.stop()
	return h.LastError.Error() + "\n" + s.log.String()
}
