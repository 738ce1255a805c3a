package sqltx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

var errDown = errors.New("the database is down")

// The statements of a publisher, by a unique part of each.
const (
	claiming   = "WITH due"
	contesting = "SELECT DISTINCT"
	renewing   = "lease IN ("
	publishing = "published = TRUE"
	returning  = "attempts = attempts - ?"
	failing    = "last_error = ?"
)

// rows returns events of a table, without ordering keys if keys is empty.
func rows(first, n int, attempts int64, keys ...string) (out [][]any) {
	for i := range n {
		var key any
		if len(keys) > 0 {
			key = keys[i%len(keys)]
		}
		id := int64(first + i)
		out = append(out, []any{id, "", "t", noData, true, fmt.Sprintf(`{"id":"%d","source":"/s","type":"t","specversion":"1.0"}`, id), key, attempts})
	}
	return out
}

// once returns the lists in order for statements that contain the part, and no rows afterwards.
func once(part string, lists ...[][]any) func(string, []any) ([][]any, error) {
	return func(statement string, _ []any) ([][]any, error) {
		if !strings.Contains(statement, part) || len(lists) == 0 {
			return nil, nil
		}
		list := lists[0]
		lists = lists[1:]
		return list, nil
	}
}

// inBubble runs a test in a bubble in which a publisher hands out the rows of a database.
func inBubble(t *testing.T, db *answers, cfg OutboxPublisherConfig, test func(events <-chan *message.RawMessage, p *OutboxPublisher, stop func(), logs *rig.Lines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		logs := &rig.Lines{}
		cfg.DB, cfg.Logger = db.open(t), logs.Logger()
		cfg.Dialect = Dialect{Name: "test", Quote: `"`, NowMillis: "NOW_MS", OrderingKeys: "KEYS", Returning: true}
		p := NewOutboxPublisher(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := p.Source(ctx)
		if err != nil {
			t.Fatal(err)
		}
		test(events, p, cancel, logs)
		cancel()
		p.Wait()
		if _, open := <-events; open {
			t.Error("an event is in the channel when all has ended")
		}
		if p.Wake(); len(p.pumps) > 0 {
			t.Errorf("%d sources are remembered", len(p.pumps))
		}
	})
}

func wantTimes(t *testing.T, what string, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s at %v, want at %v", what, got, want)
	}
}

func TestPublisherPollsAgainAtOnceAfterAFullBatch(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	refuse := func(part string, then func(string, []any) ([][]any, error)) func(string, []any) ([][]any, error) {
		return func(statement string, args []any) ([][]any, error) {
			if strings.Contains(statement, part) {
				return nil, errDown
			}
			return then(statement, args)
		}
	}
	for name, c := range map[string]struct {
		answer func(string, []any) ([][]any, error)
		want   []time.Duration
		log    string
		lines  int
	}{
		"nothing in it":           {nil, []time.Duration{0, 500 * ms, 1000 * ms}, "level=", 0},
		"not to be had":           {refuse(claiming, once(claiming)), []time.Duration{0, 500 * ms, 1000 * ms}, "claim failed", 3},
		"less than a batch":       {once(claiming, rows(1, 1, 1)), []time.Duration{0, 500 * ms, 1000 * ms}, "level=", 0},
		"a batch":                 {once(claiming, rows(1, 2, 1)), []time.Duration{0, 0, 500 * ms, 1000 * ms}, "level=", 0},
		"a batch whose keys fail": {refuse(contesting, once(claiming, rows(1, 2, 1, "a", "b"))), []time.Duration{0, 0, 500 * ms, 1000 * ms}, "claim of ordered events failed", 1},
		"as much as it may hold":  {once(claiming, rows(1, 2, 1), rows(3, 2, 1)), []time.Duration{0, 0}, "level=", 0},
		"one less than it may":    {once(claiming, rows(1, 2, 1), rows(3, 1, 1)), []time.Duration{0, 0, 500 * ms, 1000 * ms}, "level=", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &answers{answer: c.answer}
			inBubble(t, db, OutboxPublisherConfig{BatchSize: 2}, func(_ <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), logs *rig.Lines) {
				time.Sleep(1200 * ms)
				wantTimes(t, "looks", db.times(claiming), c.want...)
				if n := logs.Count(c.log); n != c.lines {
					t.Errorf("%d lines with %q, want %d:\n%s", n, c.log, c.lines, logs)
				}
			})
			for _, h := range db.of(" IN ()") {
				t.Errorf("a list is empty: %s", h.statement)
			}
		})
	}
}

func TestWakePollsTheTableAtOnce(t *testing.T) {
	t.Parallel()
	db := &answers{}
	inBubble(t, db, OutboxPublisherConfig{}, func(_ <-chan *message.RawMessage, p *OutboxPublisher, _ func(), _ *rig.Lines) {
		time.Sleep(100 * time.Millisecond)
		p.Wake()
		time.Sleep(600 * time.Millisecond)
		wantTimes(t, "looks", db.times(claiming), 0, 100*time.Millisecond, 600*time.Millisecond)
	})
}

func TestPublisherRenewsTheLeasesOfHeldEvents(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]bool{"renewed": false, "not to be renewed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := once(claiming, rows(1, 2, 1), rows(3, 2, 1))
			db := &answers{answer: func(statement string, args []any) ([][]any, error) {
				if down && strings.Contains(statement, renewing) {
					return nil, errDown
				}
				return answer(statement, args)
			}}
			inBubble(t, db, OutboxPublisherConfig{BatchSize: 2}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), logs *rig.Lines) {
				time.Sleep(35 * time.Second)
				wantTimes(t, "renewals", db.times(renewing)[:2], 10*time.Second, 20*time.Second)
				backs := db.times(returning)
				if !down {
					wantTimes(t, "given back", backs)
					if n := len(db.of(renewing)[0].args); n != 1+2+4 {
						t.Errorf("%d arguments of a renewal, want the lease's length, two leases and four rows", n)
					}
				} else {
					wantTimes(t, "what is too old to be handed out given back", backs, 30*time.Second)
					if got := ids(db.of(returning)[0].args[3:]); !slices.Equal(got, []int64{3, 4}) {
						t.Errorf("given back %v, want 3 and 4", got)
					}
					if n := logs.Count("lease renewal failed"); n < 2 {
						t.Errorf("%d log lines report it", n)
					}
				}
				for range 2 { // the channel has these; the others are behind it
					(<-events).Ack()
				}
			})
			if n := len(db.of(publishing)); n == 0 {
				t.Error("an acknowledged event was not published")
			}
		})
	}
}

func TestEventIsHandedOutWhileAThirdOfItsLeaseIsLeft(t *testing.T) {
	t.Parallel()
	answer := once(claiming, rows(1, 2, 1), rows(3, 2, 1))
	db := &answers{answer: func(statement string, args []any) ([][]any, error) {
		if strings.Contains(statement, renewing) {
			return nil, errDown
		}
		return answer(statement, args)
	}}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 2}, func(events <-chan *message.RawMessage, p *OutboxPublisher, _ func(), _ *rig.Lines) {
		time.Sleep(20 * time.Second) // of 30 seconds
		p.Wake()
		synctest.Wait()
		wantTimes(t, "given back too early", db.times(returning))
		time.Sleep(time.Millisecond)
		p.Wake()
		synctest.Wait()
		if backs := db.of(returning); len(backs) != 1 || len(ids(backs[0].args[3:])) != 2 {
			t.Errorf("given back: %v, want the two that are not in the channel", backs)
		}
		for range 2 {
			(<-events).Ack()
		}
	})
}

func TestStatementsOfAPublisherAreBoundedByTheLeaseOr15Seconds(t *testing.T) {
	t.Parallel()
	for lease, claims := range map[time.Duration]time.Duration{9 * time.Second: 9 * time.Second, 45 * time.Second: 15 * time.Second} {
		db := &answers{answer: once(claiming, rows(1, 1, 1))}
		inBubble(t, db, OutboxPublisherConfig{Lease: lease}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
			time.Sleep(lease/3 + time.Second)
			(<-events).Ack()
			synctest.Wait()
		})
		for part, want := range map[string]time.Duration{claiming: claims, renewing: lease / 3, publishing: 15 * time.Second} {
			if got := db.of(part); len(got) == 0 || got[0].within != want {
				t.Errorf("with a lease of %v, %q: %v, want %v for it", lease, part, got, want)
			}
		}
	}
}

// If the reply to a renewal arrives after the lease has ended, another publisher may have claimed the rows.
func TestRenewalThatEndsAfterTheLeaseIsTooLate(t *testing.T) {
	t.Parallel()
	answer, renewals := once(claiming, rows(1, 2, 1), rows(3, 2, 1)), 0
	db := &answers{answer: func(statement string, args []any) ([][]any, error) {
		if strings.Contains(statement, renewing) {
			if renewals++; renewals == 1 {
				return nil, errDown
			}
			<-time.After(12 * time.Second)
		}
		return answer(statement, args)
	}}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 2}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
		time.Sleep(33 * time.Second) // the leases end after 30 s; the second renewal lasts from 20 s to 32 s
		wantTimes(t, "return of the rows that were not handed out", db.times(returning), 32*time.Second)
		for range 2 {
			(<-events).Ack()
		}
	})
}

func TestStopWaitsForEventsInFlightUntilDrainTimeout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settles time.Duration // after the stop; 0: never
		ends    time.Duration
		warns   int
	}{
		"settled in time": {3 * time.Second, 3 * time.Second, 0},
		"never settled":   {0, 5 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &answers{answer: once(claiming, rows(1, 2, 1), rows(3, 2, 1))}
			inBubble(t, db, OutboxPublisherConfig{BatchSize: 2, Lease: 9 * time.Second}, func(events <-chan *message.RawMessage, p *OutboxPublisher, stop func(), logs *rig.Lines) {
				msg := <-events
				synctest.Wait()
				stop()
				stopped := time.Now()
				synctest.Wait()
				var backs []int64
				for _, h := range db.of(returning) {
					backs = append(backs, ids(h.args[3:])...)
				}
				if slices.Sort(backs); !slices.Equal(backs, []int64{2, 3, 4}) {
					t.Errorf("given back at once: %v, want what nobody has taken", backs)
				}
				if _, open := <-events; open {
					t.Error("the channel is open after the stop")
				}
				if c.settles > 0 {
					time.AfterFunc(c.settles, func() { msg.Ack() })
				}
				p.Wait()
				if took := time.Since(stopped); took != c.ends {
					t.Errorf("it took %v, want %v", took, c.ends)
				}
				wantTimes(t, "renewals", db.times(renewing), 3*time.Second)
				if n := logs.Count("stopped with unsettled events"); n != c.warns {
					t.Errorf("%d lines warn of what is not settled, want %d", n, c.warns)
				}
				if c.settles == 0 { // late, but still written
					msg.Ack()
				}
			})
			if n := len(db.of(publishing)); n != 1 {
				t.Errorf("published %d times, want once", n)
			}
		})
	}
}

func TestSettlementsAreRetriedWithBackoffUntilWritten(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		works  time.Duration // from then on; 0: never
		stops  time.Duration
		writes []time.Duration
		lost   int
	}{
		"works again":      {1300 * ms, 20 * time.Second, []time.Duration{0, 20 * ms, 60 * ms, 140 * ms, 300 * ms, 620 * ms, 1260 * ms, 2540 * ms}, 0},
		"stopped":          {30 * time.Second, 6 * time.Second, []time.Duration{0, 20 * ms, 60 * ms, 140 * ms, 300 * ms, 620 * ms, 1260 * ms, 2540 * ms, 5100 * ms, 10100 * ms, 11000 * ms, 16000 * ms}, 1},
		"stopped at once":  {100 * ms, 30 * ms, []time.Duration{0, 20 * ms, 60 * ms, 140 * ms}, 0},
		"down for a while": {13 * time.Second, 20 * time.Second, []time.Duration{0, 20 * ms, 60 * ms, 140 * ms, 300 * ms, 620 * ms, 1260 * ms, 2540 * ms, 5100 * ms, 10100 * ms, 15100 * ms}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := once(claiming, rows(1, 1, 1))
			db := &answers{}
			db.answer = func(statement string, args []any) ([][]any, error) {
				if strings.Contains(statement, publishing) && time.Since(db.began) < c.works {
					return nil, errDown
				}
				return claim(statement, args)
			}
			inBubble(t, db, OutboxPublisherConfig{}, func(events <-chan *message.RawMessage, p *OutboxPublisher, stop func(), logs *rig.Lines) {
				(<-events).Ack()
				time.Sleep(c.stops)
				stop()
				p.Wait()
				wantTimes(t, "writes", db.times(publishing), c.writes...)
				if n := logs.Count("settlement failed"); n != len(c.writes)-1+c.lost {
					t.Errorf("%d lines warn", n)
				}
				if n := logs.Count("events not settled"); n != c.lost || logs.Count("events=1") < c.lost {
					t.Errorf("%d errors, want %d", n, c.lost)
				}
			})
		})
	}
}

func TestFailedSettlementAfterTheStopIsLogged(t *testing.T) {
	t.Parallel()
	claim := once(claiming, rows(7, 2, 1))
	db := &answers{answer: func(statement string, args []any) ([][]any, error) {
		if strings.Contains(statement, publishing) {
			return nil, errDown
		}
		return claim(statement, args)
	}}
	inBubble(t, db, OutboxPublisherConfig{}, func(events <-chan *message.RawMessage, p *OutboxPublisher, stop func(), logs *rig.Lines) {
		one, two := <-events, <-events
		stop()
		p.Wait()
		one.Ack()
		two.Ack()
		if n := logs.Count("event not settled"); n != 2 || logs.Count("event=7") != 1 {
			t.Errorf("%d log lines report it:\n%s", n, logs)
		}
	})
}

func TestFailedEventIsRetriedWithBackoffOrParked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempts int64
		err      error
		delay    [2]time.Duration
		tried    int64
		parked   bool
		log      int
	}{
		"once":               {1, errDown, [2]time.Duration{0, time.Second}, 1, false, 0},
		"for the last time":  {10, errDown, [2]time.Duration{0, 0}, 10, true, 1},
		"for the last but 1": {9, errDown, [2]time.Duration{0, 256 * time.Second}, 9, false, 0},
		"for ever":           {1, message.Permanent(errDown), [2]time.Duration{0, 0}, 1, true, 1},
		"with a delay":       {1, message.RetryAfter(errDown, time.Hour), [2]time.Duration{time.Hour, time.Hour}, 1, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &answers{answer: once(claiming, rows(1, 1, c.attempts))}
			inBubble(t, db, OutboxPublisherConfig{}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), logs *rig.Lines) {
				(<-events).Nack(c.err)
				synctest.Wait()
				if n := logs.Count("event parked"); n != c.log {
					t.Errorf("%d log lines report that it is parked, want %d", n, c.log)
				}
			})
			found := db.of(failing)
			if len(found) != 1 {
				t.Fatalf("written %d times, want once", len(found))
			}
			args := found[0].args
			delay, _ := args[0].(int64)
			if delay < c.delay[0].Milliseconds() || delay > c.delay[1].Milliseconds() || args[1] != c.tried || args[2] != c.parked || !strings.Contains(fmt.Sprint(args[3]), errDown.Error()) {
				t.Errorf("written with %v, want a delay of %v, %d attempts, parked %t", args, c.delay, c.tried, c.parked)
			}
		})
	}
}

func TestEventThatWasNotTriedIsGivenBackWithItsDelayOrABackoff(t *testing.T) {
	t.Parallel()
	const long = 1000 * time.Hour // of which a random part is not as short as the other delays
	for name, c := range map[string]struct {
		settle func(*message.RawMessage)
		delay  [2]time.Duration
	}{
		"released":                     {func(msg *message.RawMessage) { msg.Release() }, [2]time.Duration{0, 0}},
		"unavailable":                  {func(msg *message.RawMessage) { msg.Nack(relay.Unavailable(errDown)) }, [2]time.Duration{time.Millisecond, long}},
		"unavailable, with a delay":    {func(msg *message.RawMessage) { msg.Nack(relay.Unavailable(message.RetryAfter(errDown, time.Second))) }, [2]time.Duration{time.Second, time.Second}},
		"untried":                      {func(msg *message.RawMessage) { msg.Nack(untried{}) }, [2]time.Duration{time.Millisecond, long}},
		"to wait its turn":             {func(msg *message.RawMessage) { msg.Nack(relay.Later(errDown, time.Minute)) }, [2]time.Duration{time.Minute, time.Minute}},
		"unavailable for the last try": {func(msg *message.RawMessage) { msg.Nack(relay.Unavailable(message.Permanent(errDown))) }, [2]time.Duration{time.Millisecond, long}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &answers{answer: once(claiming, rows(1, 1, 10))}
			inBubble(t, db, OutboxPublisherConfig{BackoffBase: long, BackoffCap: long}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
				c.settle(<-events)
				synctest.Wait()
			})
			backs := db.of(returning)
			if len(backs) != 1 || len(db.of(failing)) > 0 {
				t.Fatalf("given back %v, failed %v", backs, db.of(failing))
			}
			if delay, _ := backs[0].args[0].(int64); delay < c.delay[0].Milliseconds() || delay > c.delay[1].Milliseconds() || backs[0].args[1] != int64(1) {
				t.Errorf("given back with %v, want a delay of %v, and one attempt less", backs[0].args, c.delay)
			}
		})
	}
}

func TestAcknowledgedEventIsLetGoAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	db := &answers{answer: once(claiming, rows(1, 1, 1))}
	inBubble(t, db, OutboxPublisherConfig{}, func(events <-chan *message.RawMessage, p *OutboxPublisher, stop func(), logs *rig.Lines) {
		if msg := <-events; !msg.Acknowledged() {
			t.Error("it was settled before")
		}
		time.Sleep(15 * time.Second)
		stop()
		stopped := time.Now()
		p.Wait()
		if took := time.Since(stopped); took > 0 || logs.Count("level=") > 0 {
			t.Errorf("the stop took %v:\n%s", took, logs)
		}
	})
	if written := db.of("UPDATE"); len(written) != len(db.of(claiming)) {
		t.Errorf("written: %v", written)
	}
}

func TestEventThatNeverSettlesIsParkedAfterItsAttempts(t *testing.T) {
	t.Parallel()
	for attempts, parked := range map[int64]bool{10: false, 11: true} {
		db := &answers{answer: once(claiming, rows(1, 1, attempts))}
		inBubble(t, db, OutboxPublisherConfig{}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), logs *rig.Lines) {
			synctest.Wait()
			if n := logs.Count("no attempt was settled"); (n == 1) != parked || (len(events) == 0) != parked {
				t.Errorf("after %d attempts parked %d times, %d handed out", attempts, n, len(events))
			}
		})
	}
}

func TestListenIsCalledAgainWithBackoffAfterItEnds(t *testing.T) {
	t.Parallel()
	db := &answers{}
	began := time.Time{}
	var at []time.Duration
	cfg := OutboxPublisherConfig{PollInterval: 4 * time.Second, Listen: func(ctx context.Context, channel string, wake func()) error {
		if began.IsZero() {
			began = time.Now()
		}
		at = append(at, time.Since(began))
		if len(at) == 6 {
			<-time.After(time.Second)
			wake()
			<-ctx.Done()
		}
		return errDown
	}}
	inBubble(t, db, cfg, func(_ <-chan *message.RawMessage, p *OutboxPublisher, stop func(), logs *rig.Lines) {
		time.Sleep(90*time.Second + 100*time.Millisecond)
		if looks := db.times(claiming); !slices.Contains(looks, 89*time.Second) {
			t.Errorf("looks at %v, want one when a notification came", looks)
		}
		stop()
		p.Wait()
		if n := logs.Count("listener ended"); n != 5 {
			t.Errorf("%d lines warn, want one for each end but the last", n)
		}
	})
	wantTimes(t, "listening", at, 0, 4*time.Second, 12*time.Second, 28*time.Second, 58*time.Second, 88*time.Second)
}
