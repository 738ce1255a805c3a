package shard

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
)

// replying is a hook that simulates a server. It has one reply to every script, or one error to every command.
type replying struct {
	reply any
	err   error
}

func (replying) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r replying) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if r.err != nil {
			cmd.SetErr(r.err)
		} else if script, ok := cmd.(interface{ SetVal(reply any) }); ok {
			script.SetVal(r.reply)
		}
		return r.err
	}
}

func (r replying) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = r.ProcessHook(nil)(ctx, cmd)
		}
		return r.err
	}
}

func (r replying) scripts(t *testing.T) *Scripts {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	client.AddHook(r)
	t.Cleanup(func() { _ = client.Close() })
	return New(eval.New(client, "n", slog.New(slog.DiscardHandler)), Constants{Namespace: "n", Identity: "i"})
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// runs executes each script of a shard.
var runs = map[string]func(context.Context, *Scripts, Shard) error{
	"rearm": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Rearm(ctx, home, Act{}, time.Time{}, "", []string{"1"})
		return err
	},
	"discard": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Discard(ctx, home, Act{}, []string{"1"})
		return err
	},
	"erase": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Erase(ctx, home, Act{}, []string{"1"})
		return err
	},
	"change": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Change(ctx, home, Act{}, "park", time.Time{}, []string{"1"})
		return err
	},
	"replay": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Replay(ctx, home, Act{}, time.Time{}, []string{"1"})
		return err
	},
	"import": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Import(ctx, home, Act{}, make([]Imported, 1))
		return err
	},
	"forget": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Forget(ctx, home, Act{}, "digest", "name")
		return err
	},
	"list": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.List(ctx, home, Listing{Of: "pending", Limit: 1})
		return err
	},
	"claim": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Claim(ctx, home, Claiming{Limit: 1})
		return err
	},
	"settle": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Settle(ctx, home, Settling{}, make([]Settlement, 1))
		return err
	},
	"schedule": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Schedule(ctx, home, "1", time.Time{})
		return err
	},
	"extend": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Extend(ctx, home, time.Second, make([]Held, 1), eval.Durability{})
		return err
	},
	"pause": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Pause(ctx, home, Act{}, "d", "", time.Time{})
		return err
	},
	"resume": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Resume(ctx, home, Act{}, "d")
		return err
	},
	"pauses": func(ctx context.Context, s *Scripts, home Shard) error { _, _, err := s.Pauses(ctx, home); return err },
	"unhold": func(ctx context.Context, s *Scripts, home Shard) error { _, err := s.Unhold(ctx, home); return err },
	"generation": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Generation(ctx, home, "f", true, 0)
		return err
	},
	"reposition": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Reposition(ctx, home, Act{}, "f", "name", 1, "1")
		return err
	},
	"repair": func(ctx context.Context, s *Scripts, home Shard) error {
		_, _, _, err := s.Repair(ctx, home, false, RepairAt{}, 1)
		return err
	},
	"turn": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Turn(ctx, home, Turning{At: NoPlace})
		return err
	},
	"sweep": func(ctx context.Context, s *Scripts, home Shard) error {
		_, _, err := s.Sweep(ctx, home, time.Second, 1)
		return err
	},
	"timer": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.SetTimer(ctx, home, "record", Timer{})
		return err
	},
	"due": func(ctx context.Context, s *Scripts, home Shard) error {
		_, _, err := s.DueTimers(ctx, home, 0, 1)
		return err
	},
	"decide": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Decide(ctx, home, time.Time{}, make([]Expiring, 1))
		return err
	},
	"revoke": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Revoke(ctx, home, "s", nil)
		return err
	},
}

// looks runs each operation that takes any reply, or none of a script.
var looks = map[string]func(context.Context, *Scripts, Shard) error{
	"denied": func(ctx context.Context, s *Scripts, home Shard) error {
		_, _, err := s.Denied(ctx, home, []string{"get"})
		return err
	},
	"audit": func(ctx context.Context, s *Scripts, home Shard) error {
		_, _, err := s.Audit(ctx, home, "-", 1)
		return err
	},
	"mark": func(ctx context.Context, s *Scripts, home Shard) error {
		_, err := s.Mark(ctx, home, "digest")
		return err
	},
	"note plan": func(ctx context.Context, s *Scripts, home Shard) error { return s.NotePlan(ctx, home, Plan{}) },
	"plans":     func(ctx context.Context, s *Scripts, home Shard) error { _, err := s.Plans(ctx, home); return err },
	"positions": func(ctx context.Context, s *Scripts, home Shard) error {
		_, _, err := s.Positions(ctx, home, 0)
		return err
	},
	"timers": func(ctx context.Context, s *Scripts, home Shard) error {
		_, _, _, err := s.ListTimers(ctx, home, false, TimerPlace{}, time.Time{}, 1)
		return err
	},
	"identities": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.Identities(ctx, []int{1, 2})
		return err
	},
	"wrong types": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.WrongTypes(ctx, []int{1, 2})
		return err
	},
	"blocked": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.Blocked(ctx, []int{1, 2})
		return err
	},
	"failing since": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.FailingSince(ctx, []int{1, 2})
		return err
	},
	"has positions": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.HasPositions(ctx, []int{1, 2})
		return err
	},
	"position in": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.PositionIn(ctx, []int{1, 2}, "f")
		return err
	},
	"existing": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, _, err := s.Existing(ctx, []int{1, 2})
		return err
	},
	"counts": func(ctx context.Context, s *Scripts, _ Shard) error { _, err := s.Counts(ctx, []int{1, 2}); return err },
	"parked by": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.ParkedBy(ctx, []int{1, 2})
		return err
	},
	"firsts": func(ctx context.Context, s *Scripts, _ Shard) error { _, err := s.Firsts(ctx, []int{1, 2}); return err },
	"last parked": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.LastParked(ctx, []int{1, 2})
		return err
	},
	"first parked": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.FirstParked(ctx, []int{1, 2})
		return err
	},
	"first blocking": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.FirstBlocking(ctx, []int{1, 2})
		return err
	},
	"last sent": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.LastSent(ctx, []int{1, 2})
		return err
	},
	"has lanes": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.HasLanes(ctx, []int{1, 2})
		return err
	},
	"has audit": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.HasAudit(ctx, []int{1, 2})
		return err
	},
	"has failures": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.HasFailures(ctx, []int{1, 2})
		return err
	},
	"waiting": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.Waiting(ctx, []int{1, 2})
		return err
	},
	"first timers": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.FirstTimers(ctx, []int{1, 2})
		return err
	},
	"timer counts": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.TimerCounts(ctx, []int{1, 2}, time.Time{})
		return err
	},
	"find timer": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.FindTimer(ctx, []int{1, 2}, "s")
		return err
	},
	"has timers": func(ctx context.Context, s *Scripts, _ Shard) error {
		_, err := s.HasTimers(ctx, []int{1, 2}, false)
		return err
	},
}

func TestReplyThatNoScriptGivesIsAnError(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{
		nil, "text", int64(1), []any{}, []any{"1"}, []any{"x", "x"}, []any{"1", "identity", "another"},
	} {
		s := replying{reply: reply}.scripts(t)
		for name, run := range runs {
			rows, _ := reply.([]any)
			foreign := slices.Contains(rows, any("another"))
			if foreign && (name == "extend" || name == "repair") {
				continue // the one changes only what the caller has leased, and the other reports what it finds
			}
			if err := run(t.Context(), s, s.Shard(1)); err == nil || foreign && !strings.Contains(err.Error(), "another") {
				t.Errorf("%s, whose reply is %v: %v", name, reply, err)
			}
		}
	}
}

func TestErrorOfTheServerIsTheErrorOfEachOperation(t *testing.T) {
	t.Parallel()
	s := replying{err: refusal("ERR refused")}.scripts(t)
	for _, all := range []map[string]func(context.Context, *Scripts, Shard) error{runs, looks} {
		for name, run := range all {
			if err := run(t.Context(), s, s.Shard(1)); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
