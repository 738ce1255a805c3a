package expiry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

// TestOneSweepReachesEveryDueTimerOnce has batches in which no timer is decided, and some that are only cancelled.
func TestOneSweepReachesEveryDueTimerOnce(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) })
	due := past
	for _, kind := range []string{"bad", "untyped", "nothing", "good"} {
		for i := range 7 {
			f.record(fmt.Sprint(kind, i), due)
			due = due.Add(time.Second)
		}
	}
	var said rig.Lines
	w, stop := f.working(expiry.WorkerConfig{
		BatchSize: 2, SweepInterval: time.Hour, Logger: said.Logger(),
		Event: func(_ context.Context, timer expiry.Timer) (*message.Message, error) {
			event := expired(timer.Subject)
			switch strings.TrimRight(timer.Subject, "0123456789") {
			case "bad", "bad, too":
				return nil, errors.New("no such ticket")
			case "untyped":
				delete(event.Attributes, message.AttrType)
			case "nothing":
				return nil, nil
			}
			return event, nil
		},
	})
	redistest.Eventually(t, "the sweep to end", func() bool { return said.Count("decisions failed") == 1 })
	stop()
	if c := w.Counts(); c != (expiry.Counts{Enqueued: 7, Cancelled: 7, Failed: 14}) {
		t.Errorf("%+v", c)
	}
	if said.Count("sweep failed") > 0 {
		t.Errorf("logged\n%s", said.String())
	}
}

// scriptFails is a client whose nth call of a script and those after it fail if they have an argument.
type scriptFails struct {
	refusing

	arg   string
	after int64
	calls *atomic.Int64
}

func (s scriptFails) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && slices.ContainsFunc(cmd.Args(), func(arg any) bool {
			if text, ok := arg.(*string); ok {
				arg = *text
			}
			return strings.Contains(fmt.Sprint(arg), s.arg)
		}) && s.calls.Add(1) > s.after {
			cmd.SetErr(errRefused)
			return errRefused
		}
		return next(ctx, cmd)
	}
}

func (s scriptFails) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// refusal is an error of a server, which no client retries.
type refusal string

func (r refusal) Error() string { return string(r) }
func (r refusal) RedisError()   {}

const errRefused = refusal("ERR refused by a hook")

func TestWorkerLogsTheFailureOfATimerBeforeTheErrorThatEndsTheVisit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fails  scriptFails
		timers []string
		want   string
		failed int64
	}{
		"the next timers are not read": {scriptFails{after: 1}, []string{"bad", "bad, too"}, `event of the timer of \"bad\": no such ticket\nslot `, 2},
		"a batch is not decided":       {scriptFails{arg: "good"}, []string{"bad", "good"}, `event of the timer of \"bad\": no such ticket\nscript decide: ERR refused`, 1},
		"a timer is not cancelled":     {scriptFails{arg: "cancel"}, []string{"bad", "nothing"}, `event of the timer of \"bad\": no such ticket"`, 2},
		"the first is not cancelled":   {scriptFails{arg: "cancel"}, []string{"a"}, `event of the timer of \"a\": expiry: cancel \"a\": script timer: ERR refused by a hook"`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, client := redistest.Mini(t)
			f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) { c.Keyspace, c.NoRegistration = luatx.Partitions(1), true })
			f.decides("never recorded", past, expiry.NotDue)
			for i, subject := range c.timers {
				f.record(subject, past.Add(time.Duration(i)*time.Second))
			}
			f.due(1) // the server has loaded the scripts
			c.fails.calls = new(atomic.Int64)
			client.AddHook(c.fails)
			var said rig.Lines
			w, stop := f.working(expiry.WorkerConfig{
				BatchSize: 2, SweepInterval: time.Hour, Logger: said.Logger(),
				Event: func(_ context.Context, timer expiry.Timer) (*message.Message, error) {
					switch timer.Subject {
					case "bad", "bad, too":
						return nil, errors.New("no such ticket")
					case "good":
						return expired("good"), nil
					}
					return nil, nil
				},
			})
			redistest.Eventually(t, "the failure to be logged", func() bool { return said.Count("decisions failed") == 1 })
			stop()
			if said.Count(c.want) != 1 || w.Counts().Failed != c.failed {
				t.Errorf("%+v, logged\n%s", w.Counts(), said.String())
			}
		})
	}
}
