package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/scripted"
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

// answering returns scripts that are sent to a scripted server.
func answering(t *testing.T, answer func(cmd []string) any) (*Scripts, *scripted.Server) {
	t.Helper()
	server := scripted.New(answer)
	return New(eval.New(server.Client(t), "n", slog.New(slog.DiscardHandler)), Constants{Namespace: "n", Identity: "i"}), server
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// outcome is what an operation returned. The last value is its error.
type outcome []any

func of(values ...any) outcome { return values }

// ofClaim returns the outcome of a claim. An event with an unread body has an error of its own.
func ofClaim(claim Claim, err error) outcome {
	for _, e := range claim.Events {
		err = errors.Join(err, e.Unread)
	}
	return of(claim, err)
}

func (o outcome) err() error {
	err, _ := o[len(o)-1].(error)
	return err
}

// blank reports whether there is nothing beside the error but what an operation of this name may return there.
func (o outcome) blank(name string) bool {
	values := o[:len(o)-1]
	if may, ok := beside[name]; ok {
		return fmt.Sprint(values...) == may
	}
	return !slices.ContainsFunc(values, func(value any) bool {
		v := reflect.ValueOf(value)
		return value != nil && !v.IsZero() && (v.Kind() != reflect.Map || v.Len() > 0)
	})
}

// beside contains the values that operations return together with an error, if these are not zero: no chunk, the place at which a
// check continues, and the slots that were not read.
var beside = map[string]string{"sweep": "-1 0s", "repair": "[] {0 0 []} false", "existing": "[] [1 2]"}

// operations returns those of runs and of looks.
func operations(ctx context.Context, s *Scripts) map[string]func() outcome {
	all := runs(ctx, s)
	maps.Copy(all, looks(ctx, s))
	return all
}

// runs executes each script of a shard.
func runs(ctx context.Context, s *Scripts) map[string]func() outcome {
	home := s.Shard(1)
	return map[string]func() outcome{
		"rearm":      func() outcome { return of(s.Rearm(ctx, home, Act{}, time.Time{}, "", []string{"1"})) },
		"discard":    func() outcome { return of(s.Discard(ctx, home, Act{}, []string{"1"})) },
		"erase":      func() outcome { return of(s.Erase(ctx, home, Act{}, []string{"1"})) },
		"change":     func() outcome { return of(s.Change(ctx, home, Act{}, "park", time.Time{}, []string{"1"})) },
		"replay":     func() outcome { return of(s.Replay(ctx, home, Act{}, time.Time{}, []string{"1"})) },
		"import":     func() outcome { return of(s.Import(ctx, home, Act{}, make([]Imported, 1))) },
		"forget":     func() outcome { return of(s.Forget(ctx, home, Act{}, "digest", "name")) },
		"list":       func() outcome { return of(s.List(ctx, home, Listing{Of: "pending", Limit: 1})) },
		"claim":      func() outcome { return ofClaim(s.Claim(ctx, home, Claiming{Limit: 1})) },
		"settle":     func() outcome { return of(s.Settle(ctx, home, Settling{}, make([]Settlement, 1))) },
		"schedule":   func() outcome { return of(s.Schedule(ctx, home, "1", time.Time{})) },
		"extend":     func() outcome { return of(s.Extend(ctx, home, time.Second, make([]Held, 1), eval.Durability{})) },
		"pause":      func() outcome { return of(s.Pause(ctx, home, Act{}, "d", "", time.Time{})) },
		"resume":     func() outcome { return of(s.Resume(ctx, home, Act{}, "d")) },
		"pauses":     func() outcome { return of(s.Pauses(ctx, home)) },
		"unhold":     func() outcome { return of(s.Unhold(ctx, home)) },
		"generation": func() outcome { return of(s.Generation(ctx, home, "f", true, 0)) },
		"reposition": func() outcome { return of(s.Reposition(ctx, home, Act{}, "f", "name", 1, "1")) },
		"repair":     func() outcome { return of(s.Repair(ctx, home, false, RepairAt{}, 1)) },
		"turn":       func() outcome { return of(s.Turn(ctx, home, Turning{At: NoPlace})) },
		"sweep":      func() outcome { return of(s.Sweep(ctx, home, time.Second, 1)) },
		"timer":      func() outcome { return of(s.SetTimer(ctx, home, "record", Timer{})) },
		"due":        func() outcome { return of(s.DueTimers(ctx, home, 0, 1)) },
		"decide":     func() outcome { return of(s.Decide(ctx, home, time.Time{}, make([]Expiring, 1))) },
		"revoke":     func() outcome { return of(s.Revoke(ctx, home, "s", nil)) },
	}
}

// looks runs each operation that takes any reply, or none of a script.
func looks(ctx context.Context, s *Scripts) map[string]func() outcome {
	home := s.Shard(1)
	return map[string]func() outcome{
		"denied":         func() outcome { return of(s.Denied(ctx, home, []string{"get"})) },
		"audit":          func() outcome { return of(s.Audit(ctx, home, "-", 1)) },
		"mark":           func() outcome { return of(s.Mark(ctx, home, "digest")) },
		"note plan":      func() outcome { return of(s.NotePlan(ctx, home, Plan{})) },
		"plans":          func() outcome { return of(s.Plans(ctx, home)) },
		"positions":      func() outcome { return of(s.Positions(ctx, home, 0)) },
		"timers":         func() outcome { return of(s.ListTimers(ctx, home, false, TimerPlace{}, time.Time{}, 1)) },
		"identities":     func() outcome { return of(s.Identities(ctx, []int{1, 2})) },
		"wrong types":    func() outcome { return of(s.WrongTypes(ctx, []int{1, 2})) },
		"blocked":        func() outcome { return of(s.Blocked(ctx, []int{1, 2})) },
		"failing since":  func() outcome { return of(s.FailingSince(ctx, []int{1, 2})) },
		"has positions":  func() outcome { return of(s.HasPositions(ctx, []int{1, 2})) },
		"position in":    func() outcome { return of(s.PositionIn(ctx, []int{1, 2}, "f")) },
		"existing":       func() outcome { return of(s.Existing(ctx, []int{1, 2})) },
		"counts":         func() outcome { return of(s.Counts(ctx, []int{1, 2})) },
		"parked by":      func() outcome { return of(s.ParkedBy(ctx, []int{1, 2})) },
		"firsts":         func() outcome { return of(s.Firsts(ctx, []int{1, 2})) },
		"last parked":    func() outcome { return of(s.LastParked(ctx, []int{1, 2})) },
		"first parked":   func() outcome { return of(s.FirstParked(ctx, []int{1, 2})) },
		"first blocking": func() outcome { return of(s.FirstBlocking(ctx, []int{1, 2})) },
		"last sent":      func() outcome { return of(s.LastSent(ctx, []int{1, 2})) },
		"has lanes":      func() outcome { return of(s.HasLanes(ctx, []int{1, 2})) },
		"has audit":      func() outcome { return of(s.HasAudit(ctx, []int{1, 2})) },
		"has failures":   func() outcome { return of(s.HasFailures(ctx, []int{1, 2})) },
		"waiting":        func() outcome { return of(s.Waiting(ctx, []int{1, 2})) },
		"first timers":   func() outcome { return of(s.FirstTimers(ctx, []int{1, 2})) },
		"timer counts":   func() outcome { return of(s.TimerCounts(ctx, []int{1, 2}, time.Time{})) },
		"find timer":     func() outcome { return of(s.FindTimer(ctx, []int{1, 2}, "s")) },
		"has timers":     func() outcome { return of(s.HasTimers(ctx, []int{1, 2}, false)) },
	}
}

func TestReplyThatNoScriptGivesIsAnError(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{
		nil, "text", int64(1), []any{}, []any{"1"}, []any{"x", "x"}, []any{"1", "identity", "another"},
	} {
		for name, run := range runs(t.Context(), replying{reply: reply}.scripts(t)) {
			rows, _ := reply.([]any)
			foreign := slices.Contains(rows, any("another"))
			if foreign && (name == "extend" || name == "repair") {
				continue // the one changes only what the caller has leased, and the other reports what it finds
			}
			if err := run().err(); err == nil || foreign && !strings.Contains(err.Error(), "another") {
				t.Errorf("%s, whose reply is %v: %v", name, reply, err)
			}
		}
	}
}

func TestErrorOfTheServerIsTheErrorOfEachOperation(t *testing.T) {
	t.Parallel()
	s := replying{err: refusal("ERR refused")}.scripts(t)
	for name, run := range operations(t.Context(), s) {
		done := run()
		if err := done.err(); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v", name, err)
		}
		if !done.blank(name) {
			t.Errorf("%s returns %v", name, done)
		}
	}
}

// healthy answers as a server whose shards have some of everything.
func healthy(s *Scripts, cmd []string) any {
	switch strings.ToLower(cmd[0]) {
	case "evalsha":
		for name, sha := range s.runner.SHAs() {
			if sha == cmd[1] {
				return healthyScript(name, cmd)
			}
		}
	case "zrange", "zrangebyscore":
		return []any{"m", "5"}
	case "hscan":
		return []any{"0", []any{"field", "value"}}
	case "hgetall", "xrange":
		return []any{}
	case "hmget":
		return []any{nil, nil}
	case "hget":
		return nil
	case "get", "zscore":
		return "5"
	case "type":
		return scripted.Status("none")
	}
	return 1
}

func healthyScript(name string, cmd []string) any {
	switch name {
	case "claim":
		return []any{"1", "", "l", 0, 0, "id", 1, "", "~1 sha name"}
	case "settle":
		return []any{"1", "", 0, "s"}
	case "unhold":
		if cmd[len(cmd)-2] == "" { // the first page
			return []any{"1", 1, "id"}
		}
		return []any{"1", 1, ""}
	case "list":
		return []any{"1", "", "", 0}
	case "repair":
		return []any{"1", 0, "0", []any{}}
	case "turn":
		return []any{"1", 1, "5", ""}
	case "sweep":
		return []any{"1", 0, "5"}
	case "extend":
		return []any{"1", "l", 1}
	case "pauses":
		return []any{"1", 0}
	case "rights":
		return []any{"1"}
	case "due":
		return []any{"1", ""}
	}
	return []any{"1", "d"}
}

func TestErrorOfAnyCommandIsTheErrorOfItsOperation(t *testing.T) {
	t.Parallel()
	var s *Scripts
	asked, refused := 0, 0
	s, _ = answering(t, func(cmd []string) any {
		if asked++; asked == refused {
			return errors.New("ERR refused")
		}
		return healthy(s, cmd)
	})
	for name, run := range operations(t.Context(), s) {
		asked, refused = 0, 0
		assert.NoError(t, run().err(), "%s", name)
		for n := range asked {
			asked, refused = 0, n+1
			assert.ErrorContains(t, run().err(), "refused", "%s, whose command %d is refused", name, n+1)
		}
	}
}

// denied is a hook whose pipelines fail without an error of their commands, as those of a client with a wrong password.
type denied struct{ pipelines int }

func (*denied) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*denied) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (d *denied) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error {
		d.pipelines++
		return refusal("WRONGPASS refused")
	}
}

func TestErrorOfAPipelineIsTheErrorOfItsOperation(t *testing.T) {
	t.Parallel()
	var s *Scripts
	s, _ = answering(t, func(cmd []string) any { return healthy(s, cmd) })
	hook := &denied{}
	s.client.AddHook(hook)
	for name, run := range operations(t.Context(), s) {
		hook.pipelines = 0
		if err := run().err(); hook.pipelines > 0 && (err == nil || !strings.Contains(err.Error(), "refused")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
