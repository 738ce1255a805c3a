package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

// started is a Runtime in a bubble.
type started struct {
	*Runtime
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
	log    *records
}

func begin(t *testing.T, cfg Config) *started {
	t.Helper()
	s := &started{t: t, log: &records{}, ended: make(chan error, 1)}
	cfg.Function = "mailer"
	if cfg.Run == nil {
		cfg.Run = func(context.Context, *message.RawMessage) error { return nil }
	}
	cfg.Logger = slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.Runtime = New(cfg)
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(t.Context())
	go func() { s.ended <- s.Run(ctx) }()
	return s
}

// end stops it and returns the time that took.
func (s *started) end() time.Duration {
	s.t.Helper()
	from := time.Now()
	s.cancel()
	if err := <-s.ended; err != nil {
		s.t.Error(err)
	}
	if h := s.Health(); h.State != Stopped || h.Ready {
		s.t.Errorf("ended as %+v", h)
	}
	return time.Since(from)
}

// ran records the times at which a function ran on entries.
type ran struct {
	mu  sync.Mutex
	ids []string
	at  []time.Time
}

func (r *ran) note(msg *message.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids, r.at = append(r.ids, msg.ID()), append(r.at, time.Now())
}

func (r *ran) run(_ context.Context, msg *message.RawMessage) error {
	r.note(msg)
	return nil
}

func (r *ran) all() ([]string, []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids), slices.Clone(r.at)
}

// TestFailedEntryRunsBeforeLaterOnesOnlyWithOrdered also checks the documented time of the retry.
func TestFailedEntryRunsBeforeLaterOnesOnlyWithOrdered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err      error
		min, max time.Duration
	}{
		"backoff":     {errFake, 1, 100 * time.Millisecond},
		"retry after": {message.RetryAfter(errFake, time.Minute), time.Minute, time.Minute},
		"panic":       {nil, 1, 100 * time.Millisecond},
	} {
		for ordered, want := range map[bool][]string{true: {"1-0", "1-0", "2-0", "3-0"}, false: {"1-0", "2-0", "3-0", "1-0"}} {
			t.Run(fmt.Sprintf("%s, ordered %v", name, ordered), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					fake, ran := newFake(t, 3), &ran{}
					s := begin(t, Config{Driver: fake, Ordered: ordered, Run: func(_ context.Context, msg *message.RawMessage) error {
						ran.note(msg)
						if ids, _ := ran.all(); len(ids) > 1 {
							return nil
						}
						if c.err == nil {
							panic("what is this")
						}
						return c.err
					}})
					time.Sleep(2 * time.Minute)
					ids, at := ran.all()
					if !slices.Equal(ids, want) {
						t.Fatalf("ran %v", ids)
					}
					if took := at[slices.Index(ids[1:], "1-0")+1].Sub(at[0]); took < c.min || took > c.max+glance {
						t.Errorf("tried again after %v, want %v to %v", took, c.min, c.max)
					}
					s.end()
					if acked, dead := fake.settled(); acked != 3 || dead != 0 {
						t.Errorf("%d acked, %d dead", acked, dead)
					}
				})
			})
		}
	}
}

func TestNothingIsAckedWhileItsFunctionRunsOrAfterItFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 1)
		s := begin(t, Config{Driver: fake, Run: func(ctx context.Context, msg *message.RawMessage) error {
			msg.Ack() // without effect until the function returns
			time.Sleep(time.Second)
			if acked, _ := fake.settled(); acked != 0 {
				t.Error("acked while the function runs")
			}
			return errFake
		}})
		time.Sleep(5 * time.Second)
		if acked, _ := fake.settled(); acked != 0 {
			t.Error("acked though the function failed")
		}
		if s.Stats().Failed < 2 {
			t.Errorf("%+v", s.Stats())
		}
		s.end()
	})
}

func TestNackOfAFunctionThatReturnsNoErrorIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 1)
		s := begin(t, Config{Driver: fake, Run: func(_ context.Context, msg *message.RawMessage) error {
			msg.Nack(message.Permanent(errFake))
			return nil
		}})
		time.Sleep(time.Second)
		if e := fake.look("1-0"); e.acked || e.dead != errFake.Error() || s.Stats().Failed != 1 {
			t.Errorf("%+v, %+v", e, s.Stats())
		}
		s.end()
	})
}

func TestEntryWhoseAckFailsIsLoggedAndDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake, ran := newFake(t, 3), &ran{}
		fake.ack = times(10)
		fake.again = func() bool { return true }
		s := begin(t, Config{Driver: fake, Run: ran.run})
		time.Sleep(30 * time.Second)
		if ids, _ := ran.all(); !slices.Equal(ids, []string{"1-0", "2-0", "3-0"}) {
			t.Errorf("ran %v", ids)
		}
		if acked, _ := fake.settled(); acked != 3 {
			t.Errorf("%d acked", acked)
		}
		if got := s.Stats(); got.AckFailed != 10 || got.Acked != 3 || got.Owed != 0 || got.InFlight != 0 || !errors.Is(s.Health().LastError, errFake) {
			t.Errorf("%+v, %+v", got, s.Health())
		}
		line := s.log.with("trigger: ack failed")[0]
		if line["what"] != "ack" || line["stream"] != "s" || line["group"] != "g" || line["entry"] != "1-0" || line["function"] != "mailer" {
			t.Errorf("logged as %v", line)
		}
		s.end()
	})
}

func TestTriggerWithTooManyOwedAcksReceivesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 2*maxOwed)
		fake.ack = times(1 << 30)
		s := begin(t, Config{Driver: fake})
		time.Sleep(time.Hour)
		if got := s.Stats(); got.Owed != maxOwed || got.Delivered != maxOwed {
			t.Errorf("%+v, want %d owed", got, maxOwed)
		}
		if h := s.Health(); h.Ready || !errors.Is(h.LastError, errOwed) && !errors.Is(h.LastError, errFake) {
			t.Errorf("%+v", h)
		}
		fake.set(nil, nil, nil)
		time.Sleep(time.Minute)
		if acked, _ := fake.settled(); acked != 2*maxOwed {
			t.Errorf("%d acked", acked)
		}
		s.end()
	})
}

func TestRefusedDeliveriesBecomeDeadLettersAndOthersAreRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg      Config
		err      error
		fields   map[string]string
		attempts int64
		dead     string
	}{
		"permanent":        {Config{}, message.Permanent(errFake), nil, 1, errFake.Error()},
		"after deliveries": {Config{MaxDeliveries: 3}, errFake, nil, 3, errFake.Error()},
		"after one":        {Config{MaxDeliveries: 1}, errFake, nil, 1, errFake.Error()},
		"malformed":        {Config{}, nil, map[string]string{"a": "\xff"}, 1, `build payload: field "a" is not UTF-8; put binary data into the field data`},
		"by default":       {Config{Retry: Retry{Entry: message.Backoff{Max: time.Second}}}, errFake, nil, 20, errFake.Error()},
		"no bound":         {Config{MaxDeliveries: -1}, message.RetryAfter(errFake, 3*time.Second), nil, 24, ""},
		"none":             {Config{NoDeadLetter: true}, message.Permanent(errFake), nil, 3, ""},
		"none, as usual":   {Config{NoDeadLetter: true}, message.RetryAfter(errFake, 3*time.Second), nil, 24, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := newFake(t, 0)
				fake.add(c.fields)
				fake.dead = times(2) // it is retried
				runs := int64(0)
				c.cfg.Driver, c.cfg.Run = fake, func(context.Context, *message.RawMessage) error { runs++; return c.err }
				c.cfg.Observer.Executed = func(_ context.Context, e Executed) {
					if e.Err == nil {
						t.Errorf("%s without an error", e.Result)
					}
				}
				s := begin(t, c.cfg)
				time.Sleep(70 * time.Second)
				e := fake.look("1-0")
				if e.acked || e.dead != c.dead || e.attempts != c.attempts {
					t.Errorf("%+v, want dead as %q after %d", e, c.dead, c.attempts)
				}
				if want := int64(min(len(c.dead), 1)); s.Stats().DeadLettered != want {
					t.Errorf("%+v", s.Stats())
				}
				s.end()
				if c.err != nil && runs != c.attempts {
					t.Errorf("%d runs in %d deliveries", runs, c.attempts)
				}
				for _, line := range s.log.with("ack failed") {
					if line["what"] != "dead letter" {
						t.Errorf("logged as %v", line)
					}
				}
			})
		})
	}
}

func TestEntryThatNeverSettlesBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			fake, reported := newFake(t, 1), error(nil)
			fake.entries[0].attempts = int64(most)
			s := begin(t, Config{Driver: fake, MaxDeliveries: most, Run: func(context.Context, *message.RawMessage) error {
				t.Error("it runs")
				return nil
			}, Observer: Observer{Executed: func(_ context.Context, e Executed) { reported = e.Err }}})
			time.Sleep(time.Second)
			if e := fake.look("1-0"); !strings.Contains(e.dead, fmt.Sprintf("delivered %d times", most)) || reported == nil || reported.Error() != e.dead {
				t.Errorf("%+v, reported %v", e, reported)
			}
			s.end()
		})
	}
}

func TestAllPlacesRunAtOnceAndFullTriggerReadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 10)
		s := begin(t, Config{Driver: fake, Concurrency: 3, Run: func(context.Context, *message.RawMessage) error {
			time.Sleep(time.Minute)
			return nil
		}})
		time.Sleep(time.Second)
		synctest.Wait()
		if got, h := s.Stats(), s.Health(); got.InFlight != 3 || got.Delivered != 3 || h.State != Receiving && h.State != Executing || !h.Ready {
			t.Errorf("%+v, %+v", got, h)
		}
		if asked := fake.count(); asked != 3 {
			t.Errorf("asked %d times for 3 places", asked)
		}
		time.Sleep(4 * time.Minute)
		if acked, _ := fake.settled(); acked != 10 {
			t.Errorf("%d acked", acked)
		}
		s.end()
	})
}

func TestIdleTriggerSleeps50Milliseconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 0)
		s := begin(t, Config{Driver: fake})
		time.Sleep(15*time.Second + 75*time.Millisecond)
		if h := s.Health(); h.State != Receiving && h.State != Idle || !h.Ready || h.LastError != nil {
			t.Errorf("%+v", h)
		}
		s.end()
		if h := s.Health(); h.LastError != nil || len(s.log.with("receiving failed")) > 0 {
			t.Errorf("the end is a failure: %+v", h)
		}
		if n := fake.count(); n != 101 { // 100 ms in the driver, 50 ms of sleep
			t.Errorf("asked %d times in 15 s", n)
		}
	})
}

func TestReconnectBackoffStartsAtZeroAndResetsAfterSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 0)
		s := begin(t, Config{Driver: fake})
		time.Sleep(time.Second)
		down := func() error { return errFake }
		for range 2 {
			fake.connected()
			fake.set(down, down, nil)
			time.Sleep(time.Minute)
			if h := s.Health(); h.Ready || h.State != Backoff || !errors.Is(h.LastError, errFake) || time.Since(h.Since) > time.Second {
				t.Errorf("%+v", h)
			}
			connects := fake.connected()
			for i, at := range connects[:5] {
				limit := 50 * time.Millisecond << i
				if i > 0 && at.Sub(connects[i-1]) > limit {
					t.Errorf("attempt %d after %v, want at most %v", i, at.Sub(connects[i-1]), limit)
				}
			}
			if n := len(connects); n < 60 || n > 300 {
				t.Errorf("%d attempts in a minute", n)
			}
			fake.set(nil, nil, nil)
			healed := time.Now()
			for !s.Health().Ready {
				time.Sleep(time.Millisecond)
			}
			if took := time.Since(healed); took > time.Second+200*time.Millisecond { // the longest delay, and one call of the driver
				t.Errorf("ready after %v", took)
			}
			time.Sleep(time.Second)
		}
		if n := len(s.log.with("receiving failed")); n != 2 {
			t.Errorf("two outages were logged %d times", n)
		}
		if n := len(s.log.with("receiving recovered")); n != 2 {
			t.Errorf("their ends were logged %d times", n)
		}
		if s.Stats().Reconnects != 2 {
			t.Errorf("%+v", s.Stats())
		}
		s.end()
	})
}

func TestDriverThatConnectsButCannotReceiveIsCalledWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 0)
		s := begin(t, Config{Driver: fake})
		time.Sleep(time.Second)
		fake.set(func() error { return errFake }, nil, nil)
		time.Sleep(time.Minute)
		s.end()
		if n := len(fake.connected()); n < 60 || n > 300 {
			t.Errorf("%d attempts in a minute", n)
		}
	})
}

func TestFunctionsGetShutdownTimeoutBeforeTheirContextsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes, want time.Duration
		ignores     bool // the end of its context
		acked       int
	}{
		"in time":            {5 * time.Second, 5 * time.Second, false, 1},
		"too long":           {time.Hour, 10 * time.Second, false, 0},
		"longer than it may": {15 * time.Second, 15 * time.Second, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake, ended := newFake(t, 2), func() error { return nil }
				s := begin(t, Config{Driver: fake, Run: func(ctx context.Context, _ *message.RawMessage) error {
					ended = ctx.Err
					if c.ignores {
						pass(c.takes)
					} else if !sleep.For(ctx, c.takes) {
						return ctx.Err()
					}
					return nil
				}})
				synctest.Wait()
				if took := s.end(); took != c.want || ended() == nil {
					t.Errorf("ended after %v, want %v; its context: %v", took, c.want, ended())
				}
				if acked, _ := fake.settled(); acked != c.acked || s.Stats().Delivered != 1 || s.Stats().InFlight != 0 {
					t.Errorf("%d acked, %+v", acked, s.Stats())
				}
			})
		})
	}
}

func TestOwedAcksAreWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]int{"written": 1, "not written": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := newFake(t, 1)
				fake.ack = times(fails)
				ending := make(chan struct{})
				s := begin(t, Config{Driver: fake, Run: func(context.Context, *message.RawMessage) error {
					<-ending
					return nil
				}})
				synctest.Wait()
				s.cancel()
				close(ending)
				s.end()
				acked, _ := fake.settled()
				if want := fails == 1; (acked == 1) != want || s.Stats().InFlight != 0 {
					t.Errorf("%d acked, %+v", acked, s.Stats())
				}
				if warned := len(s.log.with("owed ack abandoned")) == 1; warned == (fails == 1) {
					t.Errorf("warned: %v", warned)
				}
			})
		})
	}
}

func TestEveryDeliveryIsDoneEvenWithAnUnwrittenAck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 1)
		fake.ack = times(1 << 20)
		fake.again = func() bool { return true }
		s := begin(t, Config{Driver: fake})
		time.Sleep(10 * time.Second)
		if n := fake.held(); n != 2 {
			t.Errorf("%d deliveries of an entry are in hand, want 2", n)
		}
		s.end()
		if n := fake.held(); n != 0 {
			t.Errorf("%d deliveries were never let go", n)
		}
	})
}

func TestSecondRunReturnsErrStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, Config{Driver: newFake(t, 0)})
		synctest.Wait()
		if err := s.Run(t.Context()); !errors.Is(err, ErrStarted) {
			t.Error(err)
		}
		s.end()
	})
}

func TestObserversOfResultsAreNotifiedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	var got []string
	of := func(name string) Observer {
		return Observer{Executed: func(context.Context, Executed) { got = append(got, name) }}
	}
	of("first").And(of("second")).Executed(t.Context(), Executed{})
	if want := []string{"first", "second"}; !slices.Equal(got, want) {
		t.Errorf("notified %q", got)
	}
}
