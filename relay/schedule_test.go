package relay

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// handed returns the slots that are due, at most n.
func handed(t *testing.T, s *schedule, n int) (slots []int) {
	t.Helper()
	for len(slots) < n {
		pass(time.Nanosecond) // on the test's clock, so that no two are due at once
		slot, wait := s.popDue()
		if wait > 0 {
			return slots
		}
		slots = append(slots, slot)
	}
	return slots
}

// TestScheduleGivesSeveralWorkersOnlyToLongSlots checks that a slot has one worker at a time, or several if it has more than a
// batch; that no slot holds up another; and that nothing scheduled meanwhile is lost.
func TestScheduleGivesSeveralWorkersOnlyToLongSlots(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for name, test := range map[string]func(t *testing.T, s *schedule){
		"one worker each": func(t *testing.T, s *schedule) {
			s.add(1, ago(2*time.Second))
			s.add(2, ago(time.Second))
			want(t, handed(t, s, 5), 1, 2)
			s.done(1, time.Now(), false)
			want(t, handed(t, s, 5), 1)
		},
		"the earliest visit that was added meanwhile": func(t *testing.T, s *schedule) {
			s.add(1, time.Now())
			want(t, handed(t, s, 1), 1)
			s.add(1, time.Now().Add(time.Hour))
			s.add(1, time.Now().Add(time.Second))
			s.add(1, time.Now().Add(time.Minute))
			s.done(1, time.Time{}, false)
			want(t, handed(t, s, 1))
			pass(time.Second)
			want(t, handed(t, s, 1), 1)
		},
		"several for a rich one": func(t *testing.T, s *schedule) {
			s.add(1, time.Now())
			want(t, handed(t, s, 2), 1)
			s.done(1, time.Now(), true)
			want(t, handed(t, s, 3), 1, 1, 1)
			s.done(1, time.Time{}, false)
			want(t, handed(t, s, 3), 1) // rich slots are visited until they are empty
			s.done(1, time.Time{}, false)
			s.done(1, time.Time{}, false)
			if len(s.due) != 1 {
				t.Error("it was given up under a worker")
			}
			s.done(1, time.Time{}, false)
			if len(s.due) != 0 || len(s.queue) != 0 {
				t.Errorf("left: %d, %d in the queue", len(s.due), len(s.queue))
			}
		},
		"a rich one and others": func(t *testing.T, s *schedule) {
			s.add(1, time.Now())
			want(t, handed(t, s, 1), 1)
			s.done(1, time.Now(), true)
			want(t, handed(t, s, 1), 1)
			pass(time.Second)
			s.add(2, ago(time.Millisecond))
			want(t, handed(t, s, 3), 1, 2, 1)
		},
		"asked for meanwhile": func(t *testing.T, s *schedule) {
			s.add(1, time.Now())
			want(t, handed(t, s, 1), 1)
			s.add(1, time.Now().Add(time.Second))
			s.add(1, time.Now().Add(time.Minute))
			s.done(1, time.Time{}, false)
			want(t, handed(t, s, 1))
			pass(time.Second)
			want(t, handed(t, s, 1), 1)
		},
		"asked for a rich one meanwhile": func(t *testing.T, s *schedule) {
			s.add(1, time.Now())
			want(t, handed(t, s, 1), 1)
			s.done(1, time.Now(), true)
			want(t, handed(t, s, 2), 1, 1)
			s.done(1, time.Now().Add(time.Hour), false)
			want(t, handed(t, s, 2), 1)
			s.add(1, time.Now())
			s.done(1, time.Now().Add(time.Hour), false)
			want(t, handed(t, s, 2), 1)
		},
		"one that has become earlier than another": func(t *testing.T, s *schedule) {
			s.add(1, time.Now().Add(time.Second))
			s.add(2, time.Now().Add(time.Hour))
			s.add(2, time.Now())
			want(t, handed(t, s, 5), 2)
		},
		"a rich one that has become earlier than another": func(t *testing.T, s *schedule) {
			began := time.Now()
			s.add(1, began)
			want(t, handed(t, s, 1), 1)
			s.done(1, began, true)
			s.add(2, ago(-time.Second))
			pass(2 * time.Second)
			want(t, handed(t, s, 1), 1)
			s.done(1, began, true)
			want(t, handed(t, s, 1), 1)
		},
		"a rich one that was empty": func(t *testing.T, s *schedule) {
			s.add(1, time.Now())
			want(t, handed(t, s, 1), 1)
			s.done(1, time.Now(), true)
			want(t, handed(t, s, 1), 1)
			s.done(1, time.Time{}, false)
			s.add(1, time.Now())
			want(t, handed(t, s, 5), 1)
			s.done(1, time.Time{}, false)
			if len(s.due) != 0 || len(s.queue) != 0 {
				t.Errorf("left: %d, %d in the queue", len(s.due), len(s.queue))
			}
		},
		"one that is due right now": func(t *testing.T, s *schedule) {
			s.add(7, time.Now())
			if slot, wait := s.popDue(); slot != 7 || wait != 0 || len(s.queue) != 0 {
				t.Errorf("slot %d, wait %v, %d in the queue", slot, wait, len(s.queue))
			}
		},
		"a visit once, though it was added before": func(t *testing.T, s *schedule) {
			s.add(1, time.Now())
			want(t, handed(t, s, 1), 1)
			s.add(1, time.Now())
			s.done(1, time.Time{}, false)
			want(t, handed(t, s, 1), 1)
			s.done(1, time.Time{}, false)
			want(t, handed(t, s, 1))
		},
		"a signal while another is due": func(t *testing.T, s *schedule) {
			s.add(1, time.Now())
			s.add(2, time.Now())
			for _, left := range []int{1, 0} {
				<-s.wake
				want(t, handed(t, s, 1), 2-left)
				if len(s.wake) != left {
					t.Errorf("%d signals with %d slots left", len(s.wake), left)
				}
			}
		},
		"earlier than it was": func(t *testing.T, s *schedule) {
			s.add(1, time.Now().Add(time.Hour))
			s.add(1, time.Now())
			want(t, handed(t, s, 2), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newSchedule()) })
		})
	}
}

// pass advances the time of a bubble.
func pass(d time.Duration) { <-time.After(d) }

func want(t *testing.T, got []int, slots ...int) {
	t.Helper()
	if !slices.Equal(got, slots) {
		t.Errorf("handed out %v, want %v", got, slots)
	}
}
