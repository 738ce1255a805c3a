package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/sleep"
)

// field is a ground in memory, with events that are published or parked again after a while.
type field struct {
	events   []Event
	now      map[string]Event     // the re-armed events
	armed    map[string]time.Time // when they were re-armed
	fate     func(Event) (State, time.Duration)
	returned map[string]bool // failures that were returned
	room     int             // a negative value allows any number
	newer    map[string]bool // events that were parked meanwhile
	fail     error
	batch    []int
}

func newField(n int, fate func(Event) (State, time.Duration)) *field {
	f := &field{now: map[string]Event{}, armed: map[string]time.Time{}, returned: map[string]bool{}, fate: fate, room: -1}
	for i := range n {
		class := "odd"
		if i%2 == 0 {
			class = "even"
		}
		f.events = append(f.events, Event{Slot: i * 3 / n, ID: fmt.Sprint(i), State: Parked, Class: class, History: []Failure{{Class: class, Text: "first"}}})
	}
	return f
}

func (f *field) each(_ context.Context, yield func(Event, error) bool) {
	for _, e := range f.events {
		if !yield(e, nil) {
			return
		}
	}
}

func (f *field) rearm(_ context.Context, slot int, ids []string) (Answers, error) {
	if f.fail != nil {
		return nil, f.fail
	}
	f.batch = append(f.batch, len(ids))
	list := make(Answers, len(ids))
	for i, id := range ids {
		list[i] = Answer{id, Done}
		n := slices.IndexFunc(f.events, func(e Event) bool { return e.ID == id })
		switch {
		case f.events[n].Slot != slot:
			list[i].Outcome = Unknown
		case f.newer[id]:
			list[i].Outcome = Newer
		case f.room == 0:
			list[i].Outcome = Full
		default:
			f.room--
			f.now[id], f.armed[id] = f.events[n], time.Now()
		}
	}
	return list, nil
}

func (f *field) state(e Event) Event {
	state, after := f.fate(e)
	if e.State = Pending; time.Since(f.armed[e.ID]) >= after {
		e.State = state
		if state != Sent {
			e.History = append([]Failure{{Class: e.Class, Text: "again"}}, e.History...)
		}
	}
	return e
}

func (f *field) look(_ context.Context, slot int, ids []string) ([]Event, error) {
	var list []Event
	for _, id := range ids {
		if e, ok := f.now[id]; ok && e.Slot == slot {
			list = append(list, f.state(e))
		}
	}
	return list, nil
}

func (f *field) failures(_ context.Context, slot int) ([]Event, error) {
	var list []Event
	for id, e := range f.now {
		if e = f.state(e); e.Slot == slot && e.State == Parked && !f.returned[id] {
			f.returned[id] = true
			list = append(list, e)
		}
	}
	return list, nil
}

// after returns the same fate for every event.
func after(d time.Duration, state State) func(Event) (State, time.Duration) {
	return func(Event) (State, time.Duration) { return state, d }
}

// byClass publishes the odd events and parks the even ones again.
func byClass(e Event) (State, time.Duration) {
	if e.Class == "odd" {
		return Sent, time.Second
	}
	return Parked, time.Second
}

// slowOrParked parks the even events again and publishes the odd ones later than a canary waits.
func slowOrParked(e Event) (State, time.Duration) {
	if e.Class == "odd" {
		return Sent, time.Minute
	}
	return Parked, time.Second
}

func TestRearmAllHonorsLimitCanaryAndRate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		ground
		opts  RearmOptions
		want  RearmResult
		takes time.Duration // at least, and at most one second more
	}{
		{"all at once", newField(1000, after(0, Sent)), RearmOptions{}, RearmResult{Matched: 1000, Rearmed: 1000}, 0},
		{"a limit", newField(1000, after(0, Sent)), RearmOptions{Limit: 700}, RearmResult{Matched: 700, Rearmed: 700}, 0},
		{"a dry run", newField(1000, nil), RearmOptions{DryRun: true, Canary: 5}, RearmResult{Matched: 1000}, 0},
		{"a limited dry run", newField(1000, nil), RearmOptions{DryRun: true, Limit: 7}, RearmResult{Matched: 7}, 0},
		{
			"a rate", newField(1000, after(0, Sent)),
			RearmOptions{Rate: 100},
			RearmResult{Matched: 1000, Rearmed: 1000},
			10 * time.Second,
		},
		{
			"a low rate", newField(3, after(0, Sent)),
			RearmOptions{Rate: 0.5},
			RearmResult{Matched: 3, Rearmed: 3},
			6 * time.Second,
		},
		{
			"a canary that lives", newField(1000, after(3*time.Second, Sent)),
			RearmOptions{Canary: 10},
			RearmResult{Matched: 1000, Rearmed: 1000, Canary: Canary{Sent: 10}},
			3 * time.Second,
		},
		{
			"a canary and the limit", newField(1000, after(time.Second, Sent)),
			RearmOptions{Canary: 10, Limit: 4},
			RearmResult{Matched: 4, Rearmed: 4, Canary: Canary{Sent: 4}},
			time.Second,
		},
		{
			"a canary that dies", newField(1000, after(3*time.Second, Parked)),
			RearmOptions{Canary: 11},
			RearmResult{Matched: 11, Rearmed: 11, Canary: Canary{ParkedAgain: 11}, ParkedAgain: 11, Stopped: StoppedByCanary, Class: "even"},
			3 * time.Second,
		},
		{
			"a canary that is slow", newField(1000, after(time.Minute, Sent)),
			RearmOptions{Canary: 10, CanaryWait: 5 * time.Second},
			RearmResult{Matched: 10, Rearmed: 10, Canary: Canary{Trying: 10}, Stopped: StoppedByCanary},
			5 * time.Second,
		},
		{
			"a canary that fails and is tried again", newField(1000, after(0, Pending)),
			RearmOptions{Canary: 11},
			RearmResult{Matched: 11, Rearmed: 11, Canary: Canary{Trying: 11}, Stopped: StoppedByCanary, Class: "even"},
			30 * time.Second,
		},
		{
			"a canary of which some die and some are slow", newField(100, slowOrParked),
			RearmOptions{Canary: 4, MaxParkedAgain: 3, CanaryWait: 5 * time.Second},
			RearmResult{Matched: 4, Rearmed: 4, Canary: Canary{ParkedAgain: 2, Trying: 2}, ParkedAgain: 2, Stopped: StoppedByCanary, Class: "even"},
			5 * time.Second,
		},
		{
			"a canary of which so many may die or be slow", newField(5, slowOrParked),
			RearmOptions{Canary: 4, MaxParkedAgain: 4, CanaryWait: 5 * time.Second},
			RearmResult{Matched: 5, Rearmed: 5, Canary: Canary{ParkedAgain: 2, Trying: 2}, ParkedAgain: 2},
			5 * time.Second,
		},
		{
			"a canary of which some may die", newField(100, byClass),
			RearmOptions{Canary: 10, MaxParkedAgain: 5, Rate: 10},
			RearmResult{
				Matched: 21, Rearmed: 21, Canary: Canary{Sent: 5, ParkedAgain: 5}, ParkedAgain: 6, Stopped: StoppedByFailures, Class: "even",
			},
			time.Second,
		},
		{
			"failures later", newField(1000, byClass),
			RearmOptions{Rate: 100, MaxParkedAgain: 10},
			RearmResult{Matched: 130, Rearmed: 130, ParkedAgain: 15, Stopped: StoppedByFailures, Class: "even"},
			time.Second,
		},
		{
			"failures that do not matter", newField(1000, byClass),
			RearmOptions{Rate: 100, MaxParkedAgain: -1},
			RearmResult{Matched: 1000, Rearmed: 1000, ParkedAgain: 455},
			10 * time.Second,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				c := bulk{ground: test.ground, opts: test.opts.withDefaults()}
				if err := c.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				got := c.result
				if test.opts.DryRun && got.Classes["even"] != (got.Matched+1)/2 {
					t.Errorf("classes of a dry run: %v", got.Classes)
				}
				if n := got.ParkedAgain; !test.opts.DryRun && got.Classes["even"]+got.Classes["odd"] != n {
					t.Errorf("%d parked again: %v", n, got.Classes)
				}
				got.Skipped, got.Classes = nil, nil
				if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", test.want) {
					t.Errorf("%+v, want\n%+v", got, test.want)
				}
				if took := time.Since(start); took < test.takes || took > test.takes+time.Second {
					t.Errorf("took %v, want %v", took, test.takes)
				}
			})
		})
	}
}

// TestRearmAllStopsWithItsContextAfterAnErrorOrIfTheOutboxIsFull also checks that the result states the work that was done.
func TestRearmAllStopsWithItsContextAfterAnErrorOrIfTheOutboxIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for _, opts := range []RearmOptions{{Canary: 10}, {Rate: 10}} {
			c := bulk{ground: newField(1000, after(time.Hour, Sent)), opts: opts.withDefaults()}
			if err := c.run(ctx); !errors.Is(err, context.DeadlineExceeded) || c.result.Rearmed == 0 || c.result.Rearmed > 30 {
				t.Errorf("%+v: %v", c.result, err)
			}
		}
		f := newField(1000, after(0, Sent))
		f.room = 600
		c := bulk{ground: f}
		if err := c.run(t.Context()); err != nil || c.result.Stopped != StoppedFull || c.result.Rearmed != 600 || c.result.Skipped[Full] == 0 {
			t.Errorf("%+v: %v", c.result, err)
		}
		f.fail = errors.New("down")
		c = bulk{ground: f}
		if err := c.run(t.Context()); !errors.Is(err, f.fail) || c.result.Rearmed != 0 {
			t.Errorf("%+v: %v", c.result, err)
		}
		f = newField(20, after(0, Sent))
		for i := range f.events {
			f.events[i].bare = i%2 == 0
		}
		c = bulk{ground: f, opts: RearmOptions{Canary: 4}.withDefaults()}
		if err := c.run(t.Context()); err != nil || c.result.Skipped[NoBody] != 10 || c.result.Rearmed != 10 || c.result.Canary.Sent != 4 {
			t.Errorf("%+v: %v", c.result, err)
		}
		for _, n := range f.batch {
			if n > rearmBatch {
				t.Errorf("a batch of %d", n)
			}
		}
	})
}

// unsteady is a field whose nth call fails, and whose polls take time and return the same failures each time.
type unsteady struct {
	*field

	left  int
	slow  time.Duration
	looks []time.Time // polls of failures
}

var errUnsteady = errors.New("unsteady")

func (u *unsteady) call() error {
	if u.left--; u.left == 0 {
		return errUnsteady
	}
	return nil
}

func (u *unsteady) each(ctx context.Context, yield func(Event, error) bool) {
	u.field.each(ctx, func(e Event, _ error) bool {
		if err := u.call(); err != nil {
			return yield(Event{}, err)
		}
		return yield(e, errors.New("a body that nobody can read"))
	})
}

func (u *unsteady) rearm(ctx context.Context, slot int, ids []string) (Answers, error) {
	if err := u.call(); err != nil {
		return nil, err
	}
	return u.field.rearm(ctx, slot, ids)
}

func (u *unsteady) look(ctx context.Context, slot int, ids []string) ([]Event, error) {
	if err := u.call(); err != nil {
		return nil, err
	}
	return u.field.look(ctx, slot, ids)
}

func (u *unsteady) failures(ctx context.Context, slot int) ([]Event, error) {
	if err := u.call(); err != nil {
		return nil, err
	}
	u.looks = append(u.looks, time.Now())
	sleep.For(ctx, u.slow)
	clear(u.returned)
	return u.field.failures(ctx, slot)
}

// TestRearmAllReturnsTheFirstError fails each call once.
func TestRearmAllReturnsTheFirstError(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]RearmOptions{
		"a dry run": {DryRun: true}, "all": {}, "a rate": {Rate: 50}, "a canary": {Canary: 7, Rate: 50}, "a limit": {Limit: 15},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for nth := 1; ; nth++ {
					u := &unsteady{field: newField(30, after(100*time.Millisecond, Sent)), left: nth}
					c := bulk{ground: u, opts: opts.withDefaults()}
					err := c.run(t.Context())
					if u.left > 0 { // the bulk operation makes fewer calls
						if err != nil || nth < 16 {
							t.Errorf("%d calls, %v", nth, err)
						}
						return
					}
					if !errors.Is(err, errUnsteady) || u.left < 0 {
						t.Errorf("call %d of a bulk operation failed, %d followed: %v", nth, -u.left, err)
					}
				}
			})
		})
	}
}

// TestRearmAllReportsProgressAfterEveryStep also checks that earlier reports do not change.
func TestRearmAllReportsProgressAfterEveryStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts RearmOptions
		want string // matched, re-armed, and the canary's trying and sent
	}{
		"a dry run":     {RearmOptions{DryRun: true}, "[500 0 0 0] [1000 0 0 0] [1200 0 0 0]"},
		"all":           {RearmOptions{}, "[500 500 0 0] [1000 1000 0 0] [1200 1200 0 0]"},
		"one":           {RearmOptions{Limit: 1}, "[1 1 0 0]"},
		"a canary":      {RearmOptions{Canary: 1, Limit: 1}, "[1 1 1 0] [1 1 1 0] [1 1 0 1]"},
		"a high rate":   {RearmOptions{Rate: 1e6}, "[500 500 0 0] [1000 1000 0 0] [1200 1200 0 0]"},
		"a rate of one": {RearmOptions{Rate: 1, Limit: 2}, "[1 1 0 0] [2 2 0 0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var results []RearmResult
				var said []string
				line := func(r RearmResult) string {
					return fmt.Sprint([]int{r.Matched, r.Rearmed, r.Canary.Trying, r.Canary.Sent}, r.Classes, r.Skipped)
				}
				c.opts.Progress = func(r RearmResult) { results, said = append(results, r), append(said, line(r)) }
				run := bulk{ground: newField(1200, after(100*time.Millisecond, Sent)), opts: c.opts.withDefaults()}
				if err := run.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				var got []string
				for i, r := range results {
					if line(r) != said[i] {
						t.Errorf("a result that was passed as %s became %s", said[i], line(r))
					}
					got = append(got, fmt.Sprint([]int{r.Matched, r.Rearmed, r.Canary.Trying, r.Canary.Sent}))
				}
				if strings.Join(got, " ") != c.want {
					t.Errorf("Progress received %s, want %s", got, c.want)
				}
			})
		})
	}
}

func TestRearmAllPollsLessOftenForManyShardsAndCountsEachFailureOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts  RearmOptions
		slow  time.Duration
		looks int
	}{
		"all at once": {RearmOptions{MaxParkedAgain: -1}, 0, 2 + 3},                                           // after the first batch, and at the end
		"a rate":      {RearmOptions{MaxParkedAgain: -1, Rate: 100}, 0, 33 + 2*33 + 3*34 + 3},                 // after each batch of ten
		"slow looks":  {RearmOptions{MaxParkedAgain: -1, Rate: 100}, 100 * time.Millisecond, 3 + 2*2 + 3 + 3}, // with pauses of ten times their duration
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := &unsteady{field: newField(1000, after(0, Parked)), slow: c.slow}
				run := bulk{ground: u, opts: c.opts.withDefaults()}
				if err := run.run(t.Context()); err != nil || run.result.ParkedAgain != 1000 {
					t.Errorf("%+v: %v", run.result, err)
				}
				if len(u.looks) != c.looks {
					t.Errorf("%d looks, want %d", len(u.looks), c.looks)
				}
				if d := u.looks[1].Sub(u.looks[0]); c.slow > 0 && d != 11*c.slow {
					t.Errorf("the second look comes after %v, ten times as long behind the first one as that took is %v", d, 11*c.slow)
				}
			})
		})
	}
}

func TestLimitAndCanaryCountOnlyRearmedEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newField(40, after(0, Sent))
		f.newer = map[string]bool{}
		for i := 0; i < 40; i += 2 {
			f.newer[fmt.Sprint(i)] = true
		}
		c := bulk{ground: f, opts: RearmOptions{Limit: 6, Canary: 4}.withDefaults()}
		if err := c.run(t.Context()); err != nil || c.result.Rearmed != 6 || c.result.Canary.Sent != 4 || c.result.Skipped[Newer] < 5 {
			t.Errorf("%+v: %v", c.result, err)
		}
	})
}

func TestRearmAllStopsIfTheCanaryFillsTheOutbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newField(1000, after(0, Sent))
		f.room = 3
		c := bulk{ground: f, opts: RearmOptions{Canary: 10}.withDefaults()}
		if err := c.run(t.Context()); err != nil || c.result.Stopped != StoppedFull || c.result.Rearmed != 3 || c.result.Matched != 10 || c.result.Canary.Sent != 3 {
			t.Errorf("%+v: %v", c.result, err)
		}
	})
}

func TestMostFrequentClassIsTheStopReason(t *testing.T) {
	t.Parallel()
	for want, classes := range map[string]map[string]int{"": nil, "a": {"a": 1}, "b": {"a": 1, "b": 2, "c": 2}, "c": {"a": 1, "b": 2, "c": 3, "d": 1}} {
		if got := commonest(classes); got != want {
			t.Errorf("%q of %v, want %q", got, classes, want)
		}
	}
}
