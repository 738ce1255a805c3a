package stream_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// hurry makes the next entry of a stream get an id of the next hour, as if the clock of the master were an hour fast.
func hurry(t *testing.T, client redis.UniversalClient, key string) {
	t.Helper()
	id := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10) + "-0"
	redistest.Must(t, client.Do(t.Context(), "XSETID", key, id).Err())
}

func TestFailoverToAnEarlierClockLosesNoMessageUnderPositions(t *testing.T) {
	t.Parallel()
	master, replica := redistest.WithReplica(t)
	former, next := master.Client(t), replica.Client(t)
	p := newParted(t, former, 2)
	p.positions = true
	p.publish(t, 10, 0, 1)
	before := p.consume(t, former, p.config(), nothing)
	p.wantApplied(t, 10, 1)
	for _, key := range p.keys() {
		hurry(t, former, key)
	}
	p.publish(t, 10, 1, 5)
	p.wantApplied(t, 10, 5)

	// The replica has everything until now, and none of the following.
	redistest.Must(t, former.Wait(t.Context(), 1, time.Minute).Err())
	redistest.Must(t, redistest.Admin(t, replica.Addr()).ReplicaOf(t.Context(), "NO", "ONE").Err())
	p.publish(t, 10, 5, 10)
	p.wantApplied(t, 10, 10)
	before.stop()
	redistest.Must(t, master.Stop())

	p.client = next
	p.wantApplied(t, 10, 5)
	p.publish(t, 10, 5, 10) // their ids begin where the lost ones began
	p.consume(t, next, p.config(), nothing)
	p.wantApplied(t, 10, 10)
}

func TestMessageInFlightDuringAFailoverDoesNotCoverLaterOnes(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for _, together := range []int{1, 2} { // messages that commit in one script
		p := newParted(t, client, 1)
		p.positions, p.counts = true, true
		key := p.keys()[0]
		var holding atomic.Bool
		var entered atomic.Int64
		resume := make(chan struct{})
		p.consume(t, client, p.config(), func(context.Context, string) error {
			if holding.Load() {
				entered.Add(1)
				<-resume
			}
			return nil
		})
		const before = 200 // enough for a compiled script
		p.publish(t, together, 0, before)
		redistest.Eventually(t, "all to be acknowledged", func() bool { return p.open(t.Context()) == 0 })
		lost := client.Dump(t.Context(), key).Val()
		hurry(t, client, key)
		holding.Store(true)
		p.publish(t, together, before, before+1)
		redistest.Eventually(t, "the handlers to run", func() bool { return entered.Load() == int64(together) })
		// The new master has neither the entries nor their delivery.
		redistest.Must(t, client.RestoreReplace(t.Context(), key, 0, lost).Err())
		close(resume)
		p.publish(t, together, before, before+1)
		p.publish(t, together, before, before+1)
		redistest.Eventually(t, "all to be acknowledged", func() bool { return p.open(t.Context()) == 0 })
		for a := range together {
			list, err := p.listKey("a" + strconv.Itoa(a))
			redistest.Must(t, err)
			if n, err := client.HGet(t.Context(), list, "applied").Int(); err != nil || n != before+2 {
				t.Errorf("%d in flight: aggregate a%d has %d effects, want %d", together, a, n, before+2)
			}
		}
	}
}

func TestMessageWhoseCommitAFailoverLosesIsAppliedBeforeLaterOnes(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client, admin := server.Client(t), redistest.Admin(t, server.Addr())
	for _, before := range []int{1, 200} { // after 200 commits the script is compiled
		p := newParted(t, client, 1)
		p.positions, p.counts = true, true
		entered, resume := make(chan string), make(chan struct{})
		var holding atomic.Bool
		p.consume(t, client, p.config(), func(_ context.Context, id string) error {
			if holding.Load() {
				select {
				case entered <- id:
					<-resume
				case <-resume:
				}
			}
			return nil
		})
		release := sync.OnceFunc(func() { holding.Store(false); close(resume) })
		t.Cleanup(release) // before the consumer is stopped
		hold := func(n int) {
			select {
			case got := <-entered:
				if want := "a0/" + strconv.Itoa(n); got != want {
					t.Errorf("%s is handled, want %s", got, want)
				}
			case <-redistest.Soon(t).Done():
				t.Fatalf("message %d is not handled", n)
			}
		}
		p.publish(t, 1, 0, before)
		redistest.Eventually(t, "all to be acknowledged", func() bool { return p.open(t.Context()) == 0 })
		holding.Store(true)
		p.publish(t, 1, before, before+1)
		hold(before)
		p.publish(t, 1, before+1, before+3) // read together after the one that is held
		resume <- struct{}{}
		hold(before + 1)
		replicated := keep(t, admin, p.ns)
		resume <- struct{}{}
		hold(before + 2)
		replicated.restore(t) // the new master has both deliveries, but not the first commit
		release()
		redistest.Eventually(t, "all to be acknowledged", func() bool { return p.open(t.Context()) == 0 })
		list, err := p.listKey("a0")
		redistest.Must(t, err)
		if n, err := client.HGet(t.Context(), list, "applied").Int(); err != nil || n != before+3 {
			t.Errorf("after %d messages: %d effects, %v; want %d", before, n, err, before+3)
		}
	}
}

// kept is the content of all keys whose names contain a text, except for leases.
type kept struct {
	client redis.UniversalClient
	name   string
	dumps  map[string]string
}

func keep(t *testing.T, client redis.UniversalClient, name string) kept {
	t.Helper()
	k := kept{client, name, map[string]string{}}
	for _, key := range k.keys(t) {
		k.dumps[key] = client.Dump(t.Context(), key).Val()
	}
	return k
}

func (k kept) restore(t *testing.T) {
	t.Helper()
	for _, key := range k.keys(t) {
		if k.dumps[key] == "" {
			redistest.Must(t, k.client.Del(t.Context(), key).Err())
		}
	}
	for key, dump := range k.dumps {
		redistest.Must(t, k.client.RestoreReplace(t.Context(), key, 0, dump).Err())
	}
}

func (k kept) keys(t *testing.T) (keys []string) {
	t.Helper()
	scan := k.client.Scan(t.Context(), 0, "*"+k.name+"*", 1000).Iterator()
	for scan.Next(t.Context()) {
		if key := scan.Val(); !strings.HasSuffix(key, ":lease") {
			keys = append(keys, key)
		}
	}
	redistest.Must(t, scan.Err())
	return keys
}

func TestEntryInAnotherSlotThanItsKeysIsNotSkippedAfterAFailover(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	p := newParted(t, client, 2)
	p.positions = true
	key, other := p.keys()[0], "" // other is an aggregate of the other partition
	for n := 0; other == ""; n++ {
		if tag, err := p.keyspace.Tag("a" + strconv.Itoa(n)); err != nil || tag == p.keyspace.Tags()[1] {
			redistest.Must(t, err)
			other = "a" + strconv.Itoa(n)
		}
	}
	publish := func(n int) {
		pub, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: key})
		redistest.Must(t, err)
		redistest.Must(t, pub.Send(t.Context(), numbered(other, n))...)
	}
	list, err := p.listKey(other)
	redistest.Must(t, err)
	consume := func(wait func(unsafe int64) bool) {
		a, err := p.newApplier(client, p.config(), nothing)
		redistest.Must(t, err)
		var refused atomic.Int64
		a.failed = func(err error) {
			if unsafe, ok := errors.AsType[*message.WiringError](err); ok && unsafe.Remedy != "" {
				refused.Add(1)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.run(ctx) }()
		redistest.Eventually(t, "the message to be handled", func() bool { return wait(refused.Load()) })
		cancel()
		redistest.Must(t, <-done)
	}

	redistest.Must(t, client.XGroupCreateMkStream(t.Context(), key, "shop", "0").Err())
	lost := client.Dump(t.Context(), key).Val()
	hurry(t, client, key)
	publish(0)
	consume(func(refused int64) bool { return refused > 0 || client.LLen(t.Context(), list).Val() == 1 })
	// The slot of the stream loses its newest entry, and the slot of the keys loses nothing.
	redistest.Must(t, client.RestoreReplace(t.Context(), key, 0, lost).Err())
	applied := client.LLen(t.Context(), list).Val()
	publish(int(applied)) // a new message
	consume(func(refused int64) bool { return refused > 0 || p.open(t.Context()) == 0 })
	if open, now := p.open(t.Context()), client.LLen(t.Context(), list).Val(); open == 0 && now == applied {
		t.Error("a new message was acknowledged without its effect")
	}
}
