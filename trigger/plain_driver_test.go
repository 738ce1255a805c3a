package trigger

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
)

// alone runs a test in a bubble with a driver without a group. Its scripted server has the entries 1-0, 2-0 and so on, up to n.
func alone(t *testing.T, entries int, say map[string]any, cfg Config, test func(t *testing.T, p *plain, s *scripted.Server, logs *rig.Lines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		given := 0
		s, logs := scripted.New(func(cmd []string) any {
			switch said := say[cmd[0]].(type) {
			case nil:
			case func([]string) any:
				return said(cmd)
			default:
				return said
			}
			switch cmd[0] {
			case "xrevrange":
				return []any{[]any{"0-5", []any{"f", "v"}}}
			case "get":
				return nil
			case "xread":
				if given == entries {
					time.Sleep(time.Second)
					return nil
				}
				given++
				return []any{[]any{"s", []any{[]any{fmt.Sprintf("%d-0", given), []any{"f", "v"}}}}}
			}
			return scripted.Status("OK")
		}), &rig.Lines{}
		cfg.Stream, cfg.Function, cfg.Mode = "s", "f", ModeStream
		cfg = cfg.withDefaults()
		p := &plain{link: link{client: s.Client(t), end: func() error { return errEnd }, cfg: cfg, log: logs.Logger()}}
		test(t, p, s, logs)
		if err := p.Close(); !errors.Is(err, errEnd) {
			t.Errorf("error is %v, want that of the end", err)
		}
	})
}

var errEnd = errors.New("the end")

func deliveries(t *testing.T, p *plain, n int) (list []*Delivery) {
	t.Helper()
	for range n {
		d, err := p.NextDelivery(t.Context(), time.Second)
		if err != nil || d == nil {
			t.Fatalf("%v, %v", d, err)
		}
		list = append(list, d)
	}
	return list
}

func TestReaderWithoutGroupStartsAtLastIDOrStoredPosition(t *testing.T) {
	t.Parallel()
	wrong := errors.New("WRONGTYPE of another kind")
	for name, c := range map[string]struct {
		last, key string
		kept      any
		from      string
		option    bool
		fails     bool
	}{
		"at the end":            {last: "$", from: "0-5"},
		"at an id":              {last: "0-3", from: "0-3"},
		"nothing kept":          {last: "$", key: "k", from: "0-5"},
		"kept":                  {last: "$", key: "k", kept: "0-2", from: "0-2"},
		"kept, without a key":   {last: "$", kept: "0-2", from: "0-5"},
		"a dollar kept":         {key: "k", kept: "$", option: true, fails: true},
		"something else kept":   {key: "k", kept: "yesterday", option: true, fails: true},
		"a key of another kind": {key: "k", kept: wrong, option: true, fails: true},
		"a refusal":             {key: "k", kept: errors.New("ERR no"), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			say := map[string]any{"get": func([]string) any { return c.kept }}
			alone(t, 1, say, Config{LastID: c.last, LastIDKey: c.key}, func(t *testing.T, p *plain, s *scripted.Server, _ *rig.Lines) {
				err := p.Reconnect(t.Context())
				if c.fails {
					if err == nil || errors.Is(err, ErrOption) != c.option {
						t.Errorf("error is %v, of the option: %t", err, c.option)
					}
					return
				}
				say["xrevrange"] = []any{[]any{"9-9", []any{"f", "v"}}} // meanwhile
				if err := errors.Join(err, p.Reconnect(t.Context())); err != nil {
					t.Fatal(err)
				}
				deliveries(t, p, 1)
				if d, err := p.NextDelivery(t.Context(), time.Second); d != nil || err != nil {
					t.Errorf("delivered %v, %v", d, err)
				}
				if n := len(s.Heard("get")); n > 1 || (n == 1) != (c.key != "") {
					t.Errorf("looked for the stored position %d times", n)
				}
				reads := s.Heard("xread")
				if want := "[xread count 1 block 1000 streams s " + c.from + "]"; fmt.Sprint(reads[0].Cmd) != want || reads[1].Cmd[7] != "1-0" {
					t.Errorf("read with %v, want %s, then behind the entry", reads, want)
				}
			})
		})
	}
}

func TestReaderWithoutGroupReturnsErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	alone(t, 0, map[string]any{"xrevrange": errors.New("ERR no"), "xread": errors.New("ERR no")}, Config{}, func(t *testing.T, p *plain, _ *scripted.Server, _ *rig.Lines) {
		client := &reloading{UniversalClient: p.client}
		p.client = client
		if p.Reconnect(t.Context()) == nil || client.n != 0 {
			t.Errorf("no error, or looked at the slots again %d times", client.n)
		}
		if d, err := p.NextDelivery(t.Context(), time.Second); d != nil || err == nil {
			t.Errorf("delivered %v, %v", d, err)
		}
	})
	alone(t, 0, map[string]any{"xrevrange": scripted.ErrCut, "xread": scripted.Late(time.Minute, nil)}, Config{}, func(t *testing.T, p *plain, _ *scripted.Server, _ *rig.Lines) {
		client := &reloading{UniversalClient: p.client}
		p.client = client
		if p.Reconnect(t.Context()) == nil || client.n != 1 {
			t.Errorf("no error, or looked at the slots again %d times", client.n)
		}
		began := time.Now()
		if d, err := p.NextDelivery(t.Context(), 7*time.Second); d != nil || err == nil || time.Since(began) != 7*time.Second+replySlack {
			t.Errorf("delivered %v, %v, after %v", d, err, time.Since(began))
		}
	})
}

func TestReaderWithoutGroupDeliversReturnedEntriesFirst(t *testing.T) {
	t.Parallel()
	alone(t, 4, nil, Config{}, func(t *testing.T, p *plain, _ *scripted.Server, _ *rig.Lines) {
		list := deliveries(t, p, 3)
		if d := list[0]; d.Stream != "s" || d.ID != "1-0" || d.Attempt != 1 || d.Fields["f"] != "v" || !d.Time.Equal(time.Now()) {
			t.Errorf("delivered %+v", d)
		}
		list[2].Done(false)
		list[1].Done(false)
		list[0].Done(true)
		var got []string
		for _, d := range deliveries(t, p, 3) {
			got = append(got, fmt.Sprint(d.ID, " ", d.Attempt, " ", d.Fields))
		}
		if want := []string{"2-0 2 map[f:v]", "3-0 2 map[f:v]", "4-0 1 map[f:v]"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
	})
}

func TestReaderWithoutGroupWaitsIfTooManyEntriesAreOpen(t *testing.T) {
	t.Parallel()
	alone(t, 2, nil, Config{}, func(t *testing.T, p *plain, s *scripted.Server, _ *rig.Lines) {
		first := deliveries(t, p, 1)[0]
		for len(p.open) < maxOpen {
			p.open = append(p.open, &openEntry{id: "1-1", settled: true})
		}
		began := time.Now()
		if d, err := p.NextDelivery(t.Context(), 7*time.Second); d != nil || err != nil || time.Since(began) != 7*time.Second || len(s.Heard("xread")) != 1 {
			t.Errorf("delivered %v, %v, after %v", d, err, time.Since(began))
		}
		first.Done(true)
		if d := deliveries(t, p, 1)[0]; d.ID != "2-0" {
			t.Errorf("delivered %s", d.ID)
		}
	})
}

func TestLastIDKeyHoldsTheLastEntryBeforeUnfinishedOnes(t *testing.T) {
	t.Parallel()
	say := map[string]any{}
	alone(t, 5, say, Config{LastIDKey: "k"}, func(t *testing.T, p *plain, s *scripted.Server, _ *rig.Lines) {
		if err := p.Reconnect(t.Context()); err != nil {
			t.Fatal(err)
		}
		list := deliveries(t, p, 5)
		want := func(stored ...string) {
			t.Helper()
			var got []string
			for _, h := range s.Heard("set", "k") {
				got = append(got, h.Cmd[2])
			}
			if !slices.Equal(got, stored) {
				t.Errorf("stored %v, want %v", got, stored)
			}
		}
		ack := func(i int) {
			t.Helper()
			if err := p.Ack(t.Context(), list[i-1]); err != nil {
				t.Error(err)
			}
			list[i-1].Done(true)
		}
		ack(2)
		want("0-5") // first position
		ack(1)
		want("0-5", "2-0")
		ack(4)
		want("0-5", "2-0")
		say["set"] = errors.New("ERR no")
		if p.Ack(t.Context(), list[2]) == nil {
			t.Error("no error")
		}
		delete(say, "set")
		ack(3)
		want("0-5", "2-0", "4-0", "4-0")
		say["xadd"] = errors.New("ERR no")
		if p.DeadLetter(t.Context(), list[4], "why") == nil {
			t.Error("no error")
		}
		want("0-5", "2-0", "4-0", "4-0")
		delete(say, "xadd")
		if err := p.DeadLetter(t.Context(), list[4], "why"); err != nil {
			t.Error(err)
		}
		want("0-5", "2-0", "4-0", "4-0", "5-0")
	})
}

func TestReaderWithoutGroupWritesDeadLetters(t *testing.T) {
	t.Parallel()
	alone(t, 0, nil, Config{}, func(t *testing.T, p *plain, s *scripted.Server, logs *rig.Lines) {
		d := &Delivery{Stream: "s", ID: "1-0", Attempt: 3, Time: time.UnixMilli(7), Fields: map[string]string{"b": "2", "a": "1"}}
		if err := p.DeadLetter(t.Context(), d, "why"); err != nil {
			t.Error(err)
		}
		want := "[xadd {s}:dead * dead-reason why dead-stream s dead-entry 1-0 dead-group  dead-consumer  dead-deliveries 3 dead-first 7 dead-last 7 a 1 b 2]"
		if got := fmt.Sprint(s.Heard("xadd")[0].Cmd); got != want {
			t.Errorf("written by %s, want %s", got, want)
		}
		if n := logs.Count(`delivery dead-lettered" entry=1-0 attempt=3 dead_letter={s}:dead`); n != 1 || len(s.Heard("set")) > 0 {
			t.Errorf("logged:\n%s", logs)
		}
	})
}

func TestReaderWithoutGroupCountsEntriesBehindItsPosition(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		behind int
		want   int64
	}{{0, 0}, {1, 1}, {maxLag, maxLag}, {maxLag + 1, -1}} {
		entries := func(cmd []string) any {
			if !slices.Equal(cmd[1:], []string{"s", "2-1", "+", "count", "101"}) {
				t.Errorf("command is %v", cmd)
			}
			return slices.Repeat([]any{[]any{"3-0", []any{"f", "v"}}}, c.behind)
		}
		alone(t, 0, map[string]any{"xrange": entries}, Config{}, func(t *testing.T, p *plain, _ *scripted.Server, _ *rig.Lines) {
			p.position = "2-0"
			if got, err := p.lag(t.Context()); got != c.want || err != nil {
				t.Errorf("%d entries are behind the position: lag %d, %v", c.behind, got, err)
			}
		})
	}
	alone(t, 0, map[string]any{"xrange": errors.New("ERR no")}, Config{}, func(t *testing.T, p *plain, _ *scripted.Server, _ *rig.Lines) {
		if got, err := p.lag(t.Context()); got != -1 || err == nil {
			t.Errorf("lag %d, %v after an error", got, err)
		}
	})
}
