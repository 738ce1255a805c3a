package stack_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

// flaky fails the first delivery of every charge.
type flaky struct {
	redisAccounts
	fault func(ctx context.Context, r redisAccounts, c charge) error

	mu   sync.Mutex
	seen map[string]int
}

func (f *flaky) Charge(ctx context.Context, c charge) error {
	f.mu.Lock()
	f.seen[c.Order]++
	first := f.seen[c.Order] == 1
	f.mu.Unlock()
	if first {
		return f.fault(ctx, f.redisAccounts, c)
	}
	return f.redisAccounts.Charge(ctx, c)
}

// TestRedeliveryAppliesAFailedMessageOnce makes the handler fail, panic, or issue a third command of the wrong type. In
// pipeline mode, the last one is applied twice, as documented, because EXEC keeps the commands that succeeded. Nothing stays
// pending.
func TestRedeliveryAppliesAFailedMessageOnce(t *testing.T) {
	t.Parallel()
	oops := errors.New("oops")
	after := func(err error) func(context.Context, redisAccounts, charge) error {
		return func(ctx context.Context, r redisAccounts, c charge) error {
			return errors.Join(r.Charge(ctx, c), err)
		}
	}
	faults := map[string]struct {
		fault func(context.Context, redisAccounts, charge) error
		times map[string]int
	}{
		"fails": {after(oops), map[string]int{"pipelined": 1, "scripted": 1}},
		"panics": {func(ctx context.Context, r redisAccounts, c charge) error {
			panic(fmt.Sprint(r.Charge(ctx, c)))
		}, map[string]int{"pipelined": 1, "scripted": 1}},
		"third command": {func(ctx context.Context, r redisAccounts, c charge) error {
			sums, _, _, err := r.keys(c.Customer)
			if err != nil {
				return err
			}
			return r.chargeInto(ctx, c, sums) // a hash, where a list is wanted
		}, map[string]int{"pipelined": 2, "scripted": 1}},
	}
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, c := range faults {
			for _, m := range modes {
				t.Run(name+", "+m.name, func(t *testing.T) {
					t.Parallel()
					charges := chargesOf(24, 3)
					s := newService(t, client, m)
					repo := &flaky{redisAccounts: redisAccounts{client, s.keyspace}, fault: c.fault, seen: make(map[string]int)}
					s.start(newHandler(repo))
					s.feed(charges)
					s.settled(len(charges))
					s.wantAccounts(charges, c.times[m.name])
					for order, n := range repo.seen {
						if n != 2 {
							t.Errorf("%s was handled %d times, want 2", order, n)
						}
					}
					if got, want := s.waiting(), c.times[m.name]*eventsOf(charges); got != want {
						t.Errorf("%d events wait, want %d", got, want)
					}
				})
			}
		}
	})
}

// waiting returns the number of events that the service has added to its outbox.
func (s *service) waiting() int {
	s.t.Helper()
	if s.mode.name == "scripted" {
		counts, err := outbox.NewStore(s.transactor).Counts(s.t.Context())
		redistest.Must(s.t, err)
		return int(counts.Pending)
	}
	sum := int64(0)
	for _, key := range s.streams("outbox") {
		n, err := s.client.XLen(s.t.Context(), key).Result()
		redistest.Must(s.t, err)
		sum += n
	}
	return int(sum)
}

func eventsOf(charges []charge) int {
	n := len(charges)
	for _, c := range charges {
		if c.Pence > 900 {
			n++
		}
	}
	return n
}
