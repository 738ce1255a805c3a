package trigger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
)

func TestGroupHeartbeatKeepsAllHeldEntries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer any
		warns  int
	}{"kept": {0, 0}, "refused": {errors.New("ERR no"), 3}, "no group": {scripted.ErrNoGroup, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{Own: []any{scripted.Pending("1-0", 0, 1), scripted.Pending("2-0", 0, 1)}, Say: map[string]any{"hold": c.answer}}
			inBubble(t, answers, Config{}, func(t *testing.T, g *grouped, s *scripted.Server, logs *rig.Lines) {
				ctx, cancel := context.WithCancel(t.Context())
				if err := g.Reconnect(ctx); err != nil {
					t.Fatal(err)
				}
				nextIDs(t, g, 1)
				cancel() // of a connection: the heartbeat continues
				time.Sleep(65 * time.Second)
				if got, want := s.Times("hold"), []time.Duration{20 * time.Second, 40 * time.Second, 60 * time.Second}; !slices.Equal(got, want) {
					t.Errorf("said at %v, want %v", got, want)
				}
				if got := s.Heard("hold")[0].Cmd; got[5] != "0" || got[6] != "0" || !slices.Equal(got[7:], []string{"1-0", "2-0"}) {
					t.Errorf("said %v, want that what is worked on and what waits is idle since now", got)
				}
				if n := logs.Count("heartbeat failed"); n != c.warns {
					t.Errorf("%d lines warn, want %d", n, c.warns)
				}
			})
		})
	}
}

func TestCloseRemovesTheConsumerUnlessItMayHaveEntries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		say    map[string]any
		lost   time.Duration // time since a reply was lost
		leaves bool
		warns  int
	}{
		"left":                    {nil, 0, true, 0},
		"of no group":             {map[string]any{"hold": scripted.ErrNoGroup, "dismiss": scripted.ErrNoGroup}, 0, true, 0},
		"nothing is offered":      {map[string]any{"hold": errors.New("ERR no")}, 0, false, 1},
		"not taken out":           {map[string]any{"dismiss": errors.New("ERR no")}, 0, true, 1},
		"a reply may yet come":    {nil, doubtTime - time.Second, false, 1},
		"no reply will come":      {nil, doubtTime, true, 0},
		"the server is not there": {map[string]any{"hold": scripted.Late(time.Minute, 0)}, 0, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &scripted.Group{Own: []any{scripted.Pending("1-0", 0, 1), scripted.Pending("2-0", 0, 1)}}
			synctest.Test(t, func(t *testing.T) {
				s, logs, errEnd := scripted.New(answers.Answer, scripted.GroupScripts...), &rig.Lines{}, errors.New("end")
				cfg := Config{Stream: "s", Group: "g", Function: "f", Mode: ModeStream, MaxIdleTime: time.Hour}.withDefaults()
				g := newGrouped(link{client: s.Client(t), end: func() error { return errEnd }, cfg: cfg, log: logs.Logger()})
				reconnect(t, g)
				nextIDs(t, g, 1)
				if c.lost > 0 {
					_ = g.lost(scripted.ErrCut)
					time.Sleep(c.lost)
				}
				answers.Change(func() { answers.Say = c.say })
				dismissed, held := len(s.Heard("dismiss")), len(s.Heard("hold"))
				began := time.Now()
				if err := g.Close(); !errors.Is(err, errEnd) {
					t.Errorf("error is %v, want that of the end", err)
				}
				if took := time.Since(began); took > replySlack {
					t.Errorf("it took %v", took)
				}
				if hold := s.Heard("hold")[held:]; len(hold) != 1 || hold[0].Cmd[5] != "3600000" || len(hold[0].Cmd) != 9 {
					t.Errorf("offered to others: %v", hold)
				}
				if left := s.Heard("dismiss")[dismissed:]; (len(left) == 1) != c.leaves || c.leaves && left[0].Cmd[5] != "" {
					t.Errorf("left: %v", left)
				}
				if n := logs.Count("consumer not removed"); n != c.warns {
					t.Errorf("%d lines warn, want %d:\n%s", n, c.warns, logs)
				}
				time.Sleep(3 * time.Hour)
				if n := len(s.Heard("hold")) - held; n != 1 {
					t.Errorf("%d more heartbeats", n-1)
				}
			})
		})
	}
}

func TestGroupWritesAcksAndDeadLetters(t *testing.T) {
	t.Parallel()
	for answer, acked := range map[any]bool{1: true, 0: false} {
		inBubble(t, &scripted.Group{Say: map[string]any{"xack": answer}}, Config{}, func(t *testing.T, g *grouped, s *scripted.Server, logs *rig.Lines) {
			if err := g.Ack(t.Context(), &Delivery{ID: "1-0"}); err != nil || fmt.Sprint(s.Heard("xack")[0].Cmd) != "[xack s g 1-0]" {
				t.Errorf("%v: %v", s.Heard("xack"), err)
			}
			if n := logs.Count("entry was not pending"); (n == 0) != acked {
				t.Errorf("%d lines say that it was not pending", n)
			}
			d := &Delivery{ID: "1-0", Time: time.Now()}
			time.Sleep(time.Second)
			if err := g.DeadLetter(t.Context(), d, "why"); err != nil {
				t.Error(err)
			}
			want := "[deadletter 3 s {s}:dead {s}:taken g " + g.member.Consumer + " 1-0 why " + g.member.Consumer + " 1000 1000]"
			if got := fmt.Sprint(s.Heard("deadletter")[0].Cmd); got != want {
				t.Errorf("buried by %s, want %s", got, want)
			}
			if n := logs.Count(`entry dead-lettered" entry=1-0 dead_letter={s}:dead what=moved`); n != 1 {
				t.Errorf("logged:\n%s", logs)
			}
		})
	}
	inBubble(t, &scripted.Group{Say: map[string]any{"xack": errors.New("ERR no"), "deadletter": errors.New("ERR no")}}, Config{}, func(t *testing.T, g *grouped, _ *scripted.Server, logs *rig.Lines) {
		if err := g.Ack(t.Context(), &Delivery{ID: "1-0"}); err == nil {
			t.Error("no error")
		}
		if err := g.DeadLetter(t.Context(), &Delivery{ID: "1-0"}, "why"); err == nil || logs.String() != "" {
			t.Errorf("%v:\n%s", err, logs)
		}
	})
}
