package expiry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// TestEachSubjectGetsExactlyTheEventOfItsDecision takes one timer per subject through its life.
func TestEachSubjectGetsExactlyTheEventOfItsDecision(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{})
		ctx := redistest.Soon(t)
		moved := past.Add(time.Hour)
		steps := []struct {
			subject string
			want    string // its event
			walk    func(subject string)
		}{
			{"fires", "expired", func(s string) {
				f.record(s, past)
				f.decides(s, past, expiry.Enqueued)
				f.decides(s, past, expiry.AlreadyEnqueued)
				f.record(s, past) // a late copy of the first Record
				f.decides(s, past, expiry.AlreadyEnqueued)
				f.revokes(s, false)
			}},
			{"revoked", "revoked", func(s string) {
				f.record(s, past)
				f.revokes(s, true)
				f.revokes(s, true)
				f.decides(s, past, expiry.Revoked)
				if err := f.Record(ctx, s, past); !errors.Is(err, expiry.ErrRevoked) {
					t.Errorf("recorded after it was revoked: %v", err)
				}
				f.decides(s, past, expiry.Revoked)
			}},
			{"extended between find and decide", "", func(s string) {
				f.record(s, past)
				f.extends(s, future, true)
				f.decides(s, past, expiry.NotDue)
				f.decides(s, future, expiry.NotDue)
			}},
			{"moved to another due time", "expired", func(s string) {
				f.record(s, past)
				f.extends(s, moved, true)
				f.decides(s, past, expiry.NotDue)
				f.decides(s, moved, expiry.Enqueued)
			}},
			{"cancelled between find and decide", "", func(s string) {
				f.record(s, past)
				for _, want := range []bool{true, false} {
					if ok, err := f.Cancel(ctx, s); ok != want || err != nil {
						t.Errorf("cancelled: %t, %v, want %t", ok, err, want)
					}
				}
				f.decides(s, past, expiry.NotDue)
				f.revokes(s, false)
			}},
			{"cancelled and recorded again", "expired", func(s string) {
				f.record(s, past)
				_, err := f.Cancel(ctx, s)
				redistest.Must(t, err)
				f.record(s, moved)
				f.decides(s, moved, expiry.Enqueued)
			}},
			{"moved back to the time at which it fired", "expired", func(s string) {
				f.record(s, past)
				f.decides(s, past, expiry.Enqueued)
				f.record(s, moved)
				f.extends(s, past, true)
				f.decides(s, past, expiry.AlreadyEnqueued)
			}},
			{"recorded twice", "", func(s string) {
				f.record(s, future)
				f.record(s, future)
				if err := f.Record(ctx, s, past); !errors.Is(err, expiry.ErrOpen) {
					t.Errorf("recorded for another time: %v", err)
				}
				f.decides(s, past, expiry.NotDue)
			}},
			{"never recorded", "", func(s string) {
				f.decides(s, past, expiry.NotDue)
				f.revokes(s, false)
				f.extends(s, past, false)
			}},
			{"after the cut-off", "", func(s string) {
				f.record(s, past)
				timer := expiry.Timer{Subject: s, Due: past}
				if got, err := f.Decide(ctx, timer, expired(s), past.Add(-time.Millisecond)); got != expiry.NotDue || err != nil {
					t.Errorf("%v, %v", got, err)
				}
			}},
			{"at the cut-off", "expired", func(s string) {
				f.record(s, past)
				timer := expiry.Timer{Subject: s, Due: past}
				if got, err := f.Decide(ctx, timer, expired(s), past); got != expiry.Enqueued || err != nil {
					t.Errorf("%v, %v", got, err)
				}
			}},
			{"not due yet, though before the cut-off", "", func(s string) {
				f.record(s, future)
				timer := expiry.Timer{Subject: s, Due: future}
				if got, err := f.Decide(ctx, timer, expired(s), future.Add(time.Hour)); got != expiry.NotDue || err != nil {
					t.Errorf("%v, %v", got, err)
				}
			}},
			{"identity", "expired", func(s string) { // a word that the scripts use
				f.record(s, past)
				f.decides(s, past, expiry.Enqueued)
			}},
		}
		want := make(map[string]string)
		for _, step := range steps {
			step.walk(step.subject)
			if step.want != "" {
				want[step.subject] = step.want
			}
		}
		f.has(want)
		if left := f.due(100); !slices.Equal(left, []string{"after the cut-off"}) {
			t.Errorf("%q are due, though decisions have closed all timers but the one after the cut-off", left)
		}
	})
}

func TestDueReturnsTheOldestTimersOfAllShardsUpToTheLimit(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{})
		var want []string
		for i := range 40 {
			subject := fmt.Sprintf("s%02d", i)
			f.record(subject, past.Add(time.Duration(i/2)*time.Millisecond)) // two at a time, which come by subject
			want = append(want, subject)
		}
		f.record("not yet", future)
		for _, limit := range []int{1, 7, 40, 100} {
			if got := f.due(limit); !slices.Equal(got, want[:min(limit, 40)]) {
				t.Errorf("limit %d: %q", limit, got)
			}
		}
		for timer, err := range f.Due(redistest.Soon(t), 1) {
			if err != nil || !timer.Due.Equal(past) || timer.Subject != "s00" {
				t.Errorf("%v, %v", timer, err)
			}
		}
	})
}

func TestTimeUntilTheNextTimerIsKnownUpToTheYear9999(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1).WithPrefix(c.Namespace) })
		next := func() time.Duration {
			inside := link.Of(f.tr)
			_, next, err := inside.Scripts.DueTimers(redistest.Soon(t), inside.First, 0, 10)
			redistest.Must(t, err)
			return next
		}
		f.record("due", past)
		if got := next(); got >= 0 {
			t.Errorf("the next is due in %v, though there is none", got)
		}
		f.record("last", time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
		if got := next(); got != math.MaxInt64 {
			t.Errorf("the next is due in %v, want 290 years at least", got)
		}
		f.record("soon", time.Now().Add(time.Hour))
		if got := next(); got < 50*time.Minute || got > 70*time.Minute {
			t.Errorf("the next is due in %v, want an hour", got)
		}
	})
}

func TestDueFindsTimersWithOwnTags(t *testing.T) {
	t.Parallel()
	f := newFixture(t, redistest.Shared(t).Client(t), expiry.Config{}, func(c *luatx.Config) { c.Keyspace = luatx.OwnTags() })
	f.record("a", past.Add(1e6))
	f.record("b", past)
	if got := f.due(10); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("%q", got)
	}
}

func TestTimerIsInTheSlotOfItsAggregate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, redistest.Shared(t).Client(t), expiry.Config{Aggregate: func(subject string) (string, error) {
		order, _, ok := strings.Cut(subject, "/")
		if !ok {
			return "", errors.New("no order")
		}
		return order, nil
	}})
	f.record("order-1/payment", past)
	f.record("order-1/delivery", past)
	tag, err := f.tr.Keyspace().Tag("order-1")
	redistest.Must(t, err)
	at := f.tr.Keyspace().Slots()[slices.Index(f.tr.Keyspace().Tags(), tag)]
	found, _, err := link.Of(f.tr).Scripts.DueTimers(redistest.Soon(t), link.Of(f.tr).Scripts.Shard(at), 0, 10)
	if err != nil || len(found) != 2 {
		t.Errorf("%v, %v", found, err)
	}
	if err := f.Record(redistest.Soon(t), "astray", past); err == nil || !strings.Contains(err.Error(), "no order") {
		t.Errorf("%v", err)
	}
}

func TestFullOutboxLeavesTheTimerForARetry(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) {
			c.Keyspace, c.OutboxCapacity = luatx.Partitions(1).WithPrefix(c.Namespace), 1
		})
		ctx := redistest.Soon(t)
		for _, subject := range []string{"a", "b", "c"} {
			f.record(subject, past)
		}
		f.decides("a", past, expiry.Enqueued)
		if got, err := f.Decide(ctx, expiry.Timer{Subject: "b", Due: past}, expired("b"), time.Time{}); got != 0 || !errors.Is(err, luatx.ErrOutboxFull) {
			t.Errorf("decided: %v", err)
		}
		if _, err := f.Revoke(ctx, "c", revoked("c")); !errors.Is(err, luatx.ErrOutboxFull) {
			t.Errorf("revoked: %v", err)
		}
		f.decides("a", past, expiry.AlreadyEnqueued)
		if left := f.due(10); !slices.Equal(left, []string{"b", "c"}) {
			t.Errorf("%q are due", left)
		}
		redistest.Must(t, client.Del(ctx, link.Of(f.tr).Scripts.Shard(f.tr.Keyspace().Slots()[0]).Key("entries")).Err())
		f.decides("b", past, expiry.Enqueued)
	})
}

// TestShardOfAnotherKeyspaceStaysUnchanged also checks that a timer alone binds a shard to its keyspace.
func TestShardOfAnotherKeyspaceStaysUnchanged(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) })
		f.record("a", past)
		other := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) {
			c.Namespace, c.Keyspace = f.tr.Config().Namespace, luatx.OwnTags()
		})
		aggregate := f.tr.Keyspace().Tags()[0] // as a separate tag, it has the partition's slot
		ctx := redistest.Soon(t)
		for what, err := range map[string]error{
			"record": other.Record(ctx, aggregate, past),
			"decide": second(other.Decide(ctx, expiry.Timer{Subject: aggregate, Due: past}, expired("a"), time.Time{})),
			"revoke": second(other.Revoke(ctx, aggregate, revoked("a"))),
			"due":    firstError(other.Due(ctx, 1)),
		} {
			if err == nil || !strings.Contains(err.Error(), "belongs to") {
				t.Errorf("%s: %v", what, err)
			}
		}
		f.decides("a", past, expiry.Enqueued)
	})
}

// second returns the error of a call, and reports a value returned with it.
func second[T comparable](value T, err error) error {
	if err != nil && value != *new(T) {
		return fmt.Errorf("%v was returned beside an error", value)
	}
	return err
}

func firstError(timers func(func(expiry.Timer, error) bool)) error {
	for _, err := range timers {
		return err
	}
	return nil
}

// TestLateRecordDoesNotRestoreADecidedTimer also checks that after the outbox has forgotten the event.
func TestLateRecordDoesNotRestoreADecidedTimer(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) })
	f.record("a", past)
	f.decides("a", past, expiry.Enqueued)
	shard := link.Of(f.tr).Scripts.Shard(f.tr.Keyspace().Slots()[0])
	redistest.Must(t, client.Del(redistest.Soon(t), shard.Key("pending"), shard.Key("entries")).Err())
	f.record("a", past)
	if left := f.due(1); len(left) > 0 {
		t.Errorf("%q are due again", left)
	}
	f.decides("a", past, expiry.AlreadyEnqueued)
	f.has(nil)

	// The shard has forgotten the decision, but the outbox still has the event.
	f.record("b", past)
	f.decides("b", past, expiry.Enqueued)
	redistest.Must(t, client.Del(redistest.Soon(t), shard.Key("decided")).Err())
	f.decides("b", past, expiry.AlreadyEnqueued)
	f.record("b", past)
	f.decides("b", past, expiry.AlreadyEnqueued)
	if left := f.due(1); len(left) > 0 {
		t.Errorf("%q are due after their event was found in the outbox", left)
	}
	f.has(map[string]string{"b": "expired"})
}

func TestDecisionIsForgottenAfterTheRetentionOfTheServersClock(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	now := time.Now()
	server.SetTime(now)
	f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) })
	f.record("a", past)
	f.revokes("a", true)
	another := func(subject string) {
		f.record(subject, past)
		f.decides(subject, past, expiry.Enqueued)
	}
	server.SetTime(now.Add(f.tr.Config().Retention - time.Millisecond))
	another("b")
	f.decides("a", past, expiry.Revoked)
	server.SetTime(now.Add(f.tr.Config().Retention))
	another("c")
	f.decides("a", past, expiry.NotDue)
	f.decides("b", past, expiry.AlreadyEnqueued)
	decided := link.Of(f.tr).Scripts.Shard(f.tr.Keyspace().Slots()[0]).Key("decided")
	if n := client.ZCard(redistest.Soon(t), decided).Val(); n != 2 {
		t.Errorf("%d decisions are known, want 2", n)
	}
}

func TestRevokeForgetsAHundredAndOneOldDecisions(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f, ctx := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) {
			c.Keyspace = luatx.Partitions(1).WithPrefix(c.Namespace)
		}), redistest.Soon(t)
		f.record("a", past)
		decided := link.Of(f.tr).Scripts.Shard(f.tr.Keyspace().Slots()[0]).Key("decided")
		old := make([]redis.Z, 150)
		for i := range old {
			old[i] = redis.Z{Score: float64(i), Member: fmt.Sprint("rold-", i)}
		}
		redistest.Must(t, client.ZAdd(ctx, decided, old...).Err())
		f.revokes("a", true)
		left := client.ZRange(ctx, decided, 0, -1).Val()
		if len(left) != 150-101+1 || left[0] != "rold-101" || left[len(left)-1] != "ra" {
			t.Errorf("left are %q", left)
		}
	})
}

func TestTimerIsDueByTheServersClockToTheMillisecond(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	f := newFixture(t, client, expiry.Config{})
	server.SetTime(future.Add(-time.Millisecond))
	f.record("a", future)
	if got := f.due(1); len(got) > 0 {
		t.Errorf("%q are due", got)
	}
	f.decides("a", future, expiry.NotDue)
	server.SetTime(future)
	if got := f.due(1); len(got) != 1 {
		t.Errorf("nothing is due")
	}
	f.decides("a", future, expiry.Enqueued)
}

func TestInvalidCallsFailBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	f := newFixture(t, client, expiry.Config{})
	ctx, timer := t.Context(), expiry.Timer{Subject: "a", Due: past}
	named := expired("a")
	named.Attributes["id"] = "mine"
	untyped := message.New(nil, message.Attributes{"source": "/s"}, nil)
	for want, err := range map[string]error{
		"256 bytes": f.Record(ctx, strings.Repeat("x", 257), past),
		"UTF-8":     f.Record(ctx, "a\xff", past),
		`record "a": the year is 1; use 1970 to 9999`: f.Record(ctx, "a", time.Time{}),
		`extend "a": the year is 10000; use`:          second(f.Extend(ctx, "a", time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC))),
		`subject is ""`:                               second(f.Decide(ctx, expiry.Timer{Due: past}, expired("a"), time.Time{})),
		"event is nil":                                second(f.Decide(ctx, timer, nil, time.Time{})),
		`has the id "mine"`:                           second(f.Decide(ctx, timer, named, time.Time{})),
		"no type":                                     second(f.Decide(ctx, timer, untyped, time.Time{})),
		"set both":                                    second(f.Revoke(ctx, "a", untyped)),
		"expiry: event ":                              second(f.Revoke(ctx, "a", message.New(make(chan int), expired("a").Attributes, nil))),
		"limit is 0":                                  firstError(f.Due(ctx, 0)),
		"limit is 10001":                              firstError(f.Due(ctx, 10_001)),
		"a Transactor":                                second(expiry.New(nil, expiry.Config{})),
		"a Store":                                     second(expiry.NewWorker(nil, expiry.WorkerConfig{})),
		"Event is nil":                                second(expiry.NewWorker(f.Store, expiry.WorkerConfig{})),
		"BatchSize is -1":                             second(expiry.NewWorker(f.Store, expiry.WorkerConfig{Event: expiredEvent, BatchSize: -1})),
		"BatchSize is 1001":                           second(expiry.NewWorker(f.Store, expiry.WorkerConfig{Event: expiredEvent, BatchSize: 1001})),
		"SweepInterval is":                            second(expiry.NewWorker(f.Store, expiry.WorkerConfig{Event: expiredEvent, SweepInterval: -1})),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for bound, err := range map[string]error{
		"256 bytes":    f.Record(ended, strings.Repeat("x", 256), past),
		"1970 to 9999": errors.Join(f.Record(ended, "a", time.UnixMilli(0)), f.Record(ended, "a", time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC))),
		"limit is ":    errors.Join(firstError(f.Due(ended, 1)), firstError(f.Due(ended, 10_000))),
		"event is nil": second(f.Decide(ended, timer, expired("a"), time.Time{})),
	} {
		if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), bound) {
			t.Errorf("%v; want no complaint about %s", err, bound)
		}
	}
}
