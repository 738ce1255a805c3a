package trigger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
)

// inBubble runs a test in a bubble with a driver whose server is scripted.
func inBubble(t *testing.T, answers *scripted.Group, cfg Config, test func(t *testing.T, g *grouped, s *scripted.Server, logs *rig.Lines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, logs := scripted.New(answers.Answer, scripted.GroupScripts...), &rig.Lines{}
		cfg.Stream, cfg.Group, cfg.Function, cfg.Mode = "s", "g", "f", ModeStream
		cfg = cfg.withDefaults()
		g := newGrouped(link{client: s.Client(t), end: func() error { return nil }, cfg: cfg, log: logs.Logger()})
		test(t, g, s, logs)
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

// next returns the ids of the next n deliveries.
func nextIDs(t *testing.T, g *grouped, n int) (ids []string) {
	t.Helper()
	for range n {
		d, err := g.NextDelivery(t.Context(), time.Second)
		if err != nil || d == nil {
			t.Fatalf("after %v: %v, %v", ids, d, err)
		}
		ids = append(ids, d.ID)
	}
	return ids
}

func noDelivery(t *testing.T, g *grouped) {
	t.Helper()
	if d, err := g.NextDelivery(t.Context(), time.Second); d != nil || err != nil {
		t.Errorf("delivered %v, %v, want nothing", d, err)
	}
}

func reconnect(t *testing.T, g *grouped) {
	t.Helper()
	if err := g.Reconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestGroupStartsAtTheStreamEndOfTheFirstAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last, want string
		end        []any
	}{
		"behind what is there":  {"$", "5-1", []any{[]any{"5-1", []any{"f", "v"}}}},
		"of an empty stream":    {"$", "0", []any{}},
		"from an id":            {"3-0", "3-0", nil},
		"from the first, unset": {"", "0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{Say: map[string]any{}}
			if c.end != nil {
				answers.Change(func() { answers.Say["xrevrange"] = c.end })
			}
			inBubble(t, answers, Config{LastID: c.last}, func(t *testing.T, g *grouped, s *scripted.Server, logs *rig.Lines) {
				reconnect(t, g)
				answers.Change(func() { answers.Say["xrevrange"] = []any{[]any{"9-9", []any{"f", "v"}}} }) // none of these may be skipped
				reconnect(t, g)
				for _, h := range s.Heard("xgroup", "create") {
					if h.Cmd[4] != c.want {
						t.Errorf("made from %s, want %s", h.Cmd[4], c.want)
					}
				}
				if n := logs.Count("group created"); n != 2 || len(s.Heard("xgroup")) != 2 {
					t.Errorf("%d lines say that a group is made", n)
				}
				answers.Change(func() { answers.Say["xgroup"] = errors.New("BUSYGROUP it exists") })
				reconnect(t, g)
				if n := logs.Count("group created"); n != 2 {
					t.Errorf("%d lines say that a group is made, one of them of a group that existed", n)
				}
			})
		})
	}
}

func TestReconnectFailsIfTheGroupCannotBeCreated(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"xgroup", "xrevrange"} {
		inBubble(t, &scripted.Group{Say: map[string]any{command: errors.New("ERR no")}}, Config{}, func(t *testing.T, g *grouped, s *scripted.Server, _ *rig.Lines) {
			if err := g.Reconnect(t.Context()); err == nil || err.Error() != "ERR no" {
				t.Errorf("%s: error is %v", command, err)
			}
			if err := g.Close(); err != nil || len(s.Heard("dismiss")) > 0 {
				t.Errorf("%s: it left a group that it never joined: %v", command, err)
			}
		})
	}
}

func TestLostAndAbandonedEntriesComeBeforeNewOnesLowestIDFirst(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{
		Own: []any{scripted.Pending("4-10", 0, 1), scripted.Pending("4-9", 0, 1)}, All: []any{scripted.Pending("2-0", time.Hour, 1), scripted.Pending("3-0", time.Hour, 1)},
		Fresh: []any{scripted.Entry("9-0")},
	}
	inBubble(t, answers, Config{}, func(t *testing.T, g *grouped, s *scripted.Server, _ *rig.Lines) {
		reconnect(t, g)
		if got := nextIDs(t, g, 2); !slices.Equal(got, []string{"4-9", "4-10"}) {
			t.Errorf("delivered %v first", got)
		}
		answers.Change(func() { answers.Own = nil })
		if got := nextIDs(t, g, 3); !slices.Equal(got, []string{"2-0", "3-0", "9-0"}) {
			t.Errorf("delivered %v then", got)
		}
		if n := len(s.Heard("fetch")); n != 4 {
			t.Errorf("%d entries were read again, want all but the new one", n)
		}
		answers.Change(func() { answers.All = nil })
		noDelivery(t, g)
	})
}

func TestDeliveryHasGroupConsumerFieldsAndAttempt(t *testing.T) {
	t.Parallel()
	inBubble(t, &scripted.Group{Own: []any{scripted.Pending("1-0", 0, 1)}, Fresh: []any{scripted.Entry("2-0")}}, Config{}, func(t *testing.T, g *grouped, _ *scripted.Server, _ *rig.Lines) {
		reconnect(t, g)
		time.Sleep(time.Minute)
		for _, want := range []Delivery{
			{Stream: "s", ID: "1-0", Group: "g", Fields: map[string]string{"data": "of 1-0 again"}, Attempt: 2},
			{Stream: "s", ID: "2-0", Group: "g", Fields: map[string]string{"data": "of 2-0"}, Attempt: 1},
		} {
			d, err := g.NextDelivery(t.Context(), time.Second)
			if err != nil || d == nil {
				t.Fatal(d, err)
			}
			want.Consumer, want.Time = g.member.Consumer, time.Now()
			got := *d
			got.Done = nil
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("delivered %+v, want %+v", got, want)
			}
		}
	})
}

func TestGroupSkipsClaimedAndTrimmedEntries(t *testing.T) {
	t.Parallel()
	for log, row := range map[string][]any{"entry belongs to another consumer": {}, "entry was trimmed before it was acked": {3, nil}} {
		inBubble(t, &scripted.Group{Own: []any{scripted.Pending("1-0", 0, 1)}, Fresh: []any{scripted.Entry("2-0")}, Say: map[string]any{"fetch": []any{row}}}, Config{}, func(t *testing.T, g *grouped, _ *scripted.Server, logs *rig.Lines) {
			reconnect(t, g)
			if got := nextIDs(t, g, 1); got[0] != "2-0" {
				t.Errorf("delivered %v", got)
			}
			if trimmed := strings.Contains(log, "trimmed"); trimmed != (logs.Count(log) == 1) {
				t.Errorf("logged:\n%s", logs)
			}
		})
	}
}

func TestEntryOfALostReplyIsDeliveredWithItsFirstAttempt(t *testing.T) {
	t.Parallel()
	inBubble(t, &scripted.Group{Own: []any{scripted.Pending("1-0", 0, 1)}, Say: map[string]any{"fetch": []any{[]any{1, []any{"f", "v"}}}}}, Config{}, func(t *testing.T, g *grouped, _ *scripted.Server, _ *rig.Lines) {
		reconnect(t, g)
		if d, err := g.NextDelivery(t.Context(), time.Second); err != nil || d == nil || d.Attempt != 1 || d.Fields["f"] != "v" {
			t.Errorf("delivered %+v, %v", d, err)
		}
	})
}

func TestIdleEntriesAreFoundBehindAHundredOthers(t *testing.T) {
	t.Parallel()
	page := make([]any, group.Page)
	for i := range page {
		page[i] = scripted.Pending(fmt.Sprintf("1-%d", i), 0, 1)
	}
	pages := scripted.InTurn([]any{[]any{}}, []any{page}, []any{[]any{scripted.Pending("2-0", time.Hour, 1)}})
	inBubble(t, &scripted.Group{Say: map[string]any{"exec": pages}}, Config{}, func(t *testing.T, g *grouped, s *scripted.Server, _ *rig.Lines) {
		reconnect(t, g)
		if got := nextIDs(t, g, 1); got[0] != "2-0" || s.Heard("xpending")[2].Cmd[3] != "1-100" {
			t.Errorf("delivered %v after %v", got, s.Heard("xpending"))
		}
	})
}

// reloading counts how often a cluster's client reloads the slots.
type reloading struct {
	redis.UniversalClient
	n int
}

func (r *reloading) ReloadState(context.Context) { r.n++ }

func TestReconnectReloadsSlotsAfterNetworkErrorsAndRedirects(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{scripted.ErrCut: 1, errors.New("MOVED 7 127.0.0.1:1"): 1, errors.New("ERR no"): 0} {
		inBubble(t, &scripted.Group{Say: map[string]any{"xgroup": err}}, Config{}, func(t *testing.T, g *grouped, _ *scripted.Server, _ *rig.Lines) {
			client := &reloading{UniversalClient: g.client}
			g.client = client
			if g.Reconnect(t.Context()) == nil || client.n != want {
				t.Errorf("after %v %d times, want %d", err, client.n, want)
			}
		})
	}
}

func TestOnlyReturnedEntriesAreDeliveredAgain(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Own: []any{scripted.Pending("1-0", 0, 1), scripted.Pending("2-0", 0, 1)}}
	inBubble(t, answers, Config{}, func(t *testing.T, g *grouped, _ *scripted.Server, _ *rig.Lines) {
		reconnect(t, g)
		one, _ := g.NextDelivery(t.Context(), time.Second)
		two, _ := g.NextDelivery(t.Context(), time.Second)
		reconnect(t, g) // entries in progress are not delivered again
		noDelivery(t, g)
		one.Done(true)
		two.Done(false)
		if got := nextIDs(t, g, 1); got[0] != "2-0" {
			t.Errorf("delivered %v again", got)
		}
		answers.Change(func() { answers.Own = nil })
		noDelivery(t, g)
	})
}

func TestFailedFetchIsRetried(t *testing.T) {
	t.Parallel()
	answers := &scripted.Group{Own: []any{scripted.Pending("1-0", 0, 1)}, Say: map[string]any{"fetch": errors.New("ERR no")}}
	inBubble(t, answers, Config{}, func(t *testing.T, g *grouped, s *scripted.Server, _ *rig.Lines) {
		reconnect(t, g)
		if d, err := g.NextDelivery(t.Context(), time.Second); d != nil || err == nil {
			t.Errorf("delivered %v, %v", d, err)
		}
		answers.Change(func() { answers.Own, answers.Say = nil, nil })
		if got := nextIDs(t, g, 1); got[0] != "1-0" {
			t.Errorf("delivered %v", got)
		}
		if n := len(s.Heard("xpending", "s", "g", "-", "+", "100", g.member.Consumer)); n != 2 {
			t.Errorf("looked for lost entries %d times, want again after the error", n)
		}
	})
}

func TestGroupLooksForEntriesOfLostReplies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ordered bool
		failure error
		after   time.Duration
		want    int
	}{
		"after a lost reply":                    {false, scripted.ErrCut, 0, 1},
		"after a lost reply, ordered":           {true, scripted.ErrCut, 0, 3},
		"at the end of the doubt":               {true, scripted.ErrCut, doubtTime - time.Nanosecond, 3},
		"when the doubt is over":                {true, scripted.ErrCut, doubtTime, 1},
		"after an error of the server, ordered": {true, errors.New("ERR no"), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{Say: map[string]any{"xreadgroup": c.failure}}
			inBubble(t, answers, Config{Ordered: c.ordered, ClaimInterval: time.Hour}, func(t *testing.T, g *grouped, s *scripted.Server, _ *rig.Lines) {
				reconnect(t, g)
				if _, err := g.NextDelivery(t.Context(), time.Second); err == nil {
					t.Error("no error")
				}
				looks := func() int { return len(s.Heard("xpending", "s", "g", "-", "+", "100", g.member.Consumer)) }
				before := looks()
				time.Sleep(c.after)
				answers.Change(func() { answers.Say, answers.Fresh = nil, []any{scripted.Entry("1-0"), scripted.Entry("2-0")} })
				nextIDs(t, g, 2)
				noDelivery(t, g)
				if n := looks() - before; n != c.want {
					t.Errorf("looked %d times, want %d", n, c.want)
				}
			})
		})
	}
}

func TestGroupClaimsIdleEntriesInBatches(t *testing.T) {
	t.Parallel()
	var many []any
	var names []string
	for i := range 17 {
		many = append(many, scripted.Pending(fmt.Sprintf("%d-0", i+1), time.Hour, 1))
		names = append(names, fmt.Sprintf("%d-0", i+1))
	}
	for name, c := range map[string]struct {
		all  []any
		want []string
	}{
		"nothing":               {nil, nil},
		"what has been idle":    {[]any{scripted.Pending("1-0", time.Minute, 1), scripted.Pending("2-0", time.Minute-time.Millisecond, 1), scripted.Pending("3-0", time.Hour, 1)}, []string{"1-0", "3-0"}},
		"so many at once":       {many, names[:16]},
		"one less than so many": {many[:15], names[:15]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{All: c.all}
			inBubble(t, answers, Config{}, func(t *testing.T, g *grouped, s *scripted.Server, _ *rig.Lines) {
				reconnect(t, g)
				if len(c.want) > 0 {
					nextIDs(t, g, 1)
				} else {
					noDelivery(t, g)
				}
				claims := s.Heard("takeover")
				if len(c.want) == 0 {
					if len(claims) > 0 {
						t.Errorf("claimed nothing: %v", claims)
					}
					return
				}
				if got := claims[0].Cmd; got[6] != "60000" || !slices.Equal(got[7:], c.want) {
					t.Errorf("claimed %v, want %v after 60000 ms", got, c.want)
				}
				nextIDs(t, g, len(c.want)-1) // already in memory
				if len(c.want) < claimAtOnce {
					noDelivery(t, g)
					return
				}
				if got := nextIDs(t, g, 1); got[0] != "17-0" || len(s.Heard("dismiss")) > 1 {
					t.Errorf("delivered %v, want what was left over", got)
				}
			})
		})
	}
}

func TestGroupLooksForEntriesOfOthersOncePerClaimInterval(t *testing.T) {
	t.Parallel()
	inBubble(t, &scripted.Group{}, Config{ClaimInterval: 3 * time.Second, MaxIdleTime: 2 * time.Second}, func(t *testing.T, g *grouped, s *scripted.Server, logs *rig.Lines) {
		reconnect(t, g)
		for range 8 {
			noDelivery(t, g) // a second
		}
		want := []time.Duration{0, 3 * time.Second, 6 * time.Second}
		if got := s.Times("dismiss"); !slices.Equal(got, want) {
			t.Errorf("looked at %v, want %v", got, want)
		}
		if got := s.Heard("dismiss")[0].Cmd; got[5] != "30000" {
			t.Errorf("consumers are gone after %s ms, want ten times the longest of the intervals", got[5])
		}
		if s := logs.String(); s != "" && !strings.Contains(s, "group created") || logs.Count("dead consumers") > 0 {
			t.Errorf("logged:\n%s", s)
		}
	})
}

func TestConsumersOfDeadProcessesAreRemoved(t *testing.T) {
	t.Parallel()
	for log, answer := range map[string]any{"dead consumers removed": 1, "dead consumers not removed": errors.New("ERR no")} {
		inBubble(t, &scripted.Group{Say: map[string]any{"dismiss": answer}}, Config{}, func(t *testing.T, g *grouped, _ *scripted.Server, logs *rig.Lines) {
			reconnect(t, g)
			noDelivery(t, g)
			if n := logs.Count(log); n != 1 || logs.Count("dead consumers") != 1 {
				t.Errorf("%d lines say %q:\n%s", n, log, logs)
			}
		})
	}
}

func TestGroupReadsNothingNewIfUpkeepFails(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]*scripted.Group{
		"own":      {Say: map[string]any{"exec": scripted.InTurn(errors.New("ERR no"), []any{[]any{}})}},
		"takeover": {All: []any{scripted.Pending("1-0", time.Hour, 1)}, Say: map[string]any{"takeover": errors.New("ERR no")}},
		"others":   {Say: map[string]any{"exec": scripted.InTurn([]any{[]any{}}, errors.New("ERR no"))}},
	} {
		inBubble(t, answers, Config{}, func(t *testing.T, g *grouped, s *scripted.Server, _ *rig.Lines) {
			reconnect(t, g)
			if d, err := g.NextDelivery(t.Context(), time.Second); d != nil || err == nil || len(s.Heard("xreadgroup")) > 0 {
				t.Errorf("%s: delivered %v, %v", name, d, err)
			}
		})
	}
}

func TestGroupReadEndsWithItsTimeoutOrContext(t *testing.T) {
	t.Parallel()
	inBubble(t, &scripted.Group{Say: map[string]any{"xreadgroup": scripted.Late(time.Hour, nil)}}, Config{}, func(t *testing.T, g *grouped, _ *scripted.Server, _ *rig.Lines) {
		reconnect(t, g)
		began := time.Now()
		if _, err := g.NextDelivery(t.Context(), 7*time.Second); err == nil || time.Since(began) != 7*time.Second+replySlack {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.NextDelivery(ctx, time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v", err)
		}
	})
}
