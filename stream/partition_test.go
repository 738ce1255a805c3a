package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func sortedWords(text string) string {
	words := strings.Fields(text)
	slices.Sort(words)
	return strings.Join(words, " ")
}

func TestMembersThatComeAndGoSharePartitionsEvenlyAndInOrder(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		const aggregates = 30
		p, book := newParted(t, client, 8), &handledBook{}
		steps := 0
		publish := func() { p.publish(t, aggregates, steps, steps+3); steps += 3 }

		publish()
		a := p.join(t, p.config(), book.ack)
		p.wantHolding(t, "8", a)
		publish()
		b, c := p.join(t, p.config(), book.ack), p.join(t, p.config(), book.ack)
		publish()
		p.wantHolding(t, "2 3 3", a, b, c)
		publish()
		b.stop()
		publish()
		p.wantHolding(t, "4 4", a, c)
		publish()
		book.wantInOrder(t, aggregates, steps)
		redistest.Eventually(t, "all to be acknowledged", func() bool { return p.open(t.Context()) == 0 })

		a.stop()
		c.stop()
		for i := range p.keys() {
			if key, lease := p.lease(t, i); lease["owner"] != "" {
				t.Errorf("the lease %s is held: %v", key, lease)
			}
		}
		if left := client.ZCard(t.Context(), p.keyspace.TagKey(p.keyspace.Tags()[0], "orders", "shop", "members")).Val(); left != 0 {
			t.Errorf("%d members are left", left)
		}
	})
}

func TestMemberLeavesTheShareOfAnotherMemberAlone(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p := newParted(t, client, 6)
		members := p.keyspace.TagKey(p.keyspace.Tags()[0], "orders", "shop", "members")
		another := redis.Z{Score: float64(time.Now().Add(-time.Second).UnixMilli()), Member: "another"} // has not taken its share yet
		redistest.Must(t, client.ZAdd(t.Context(), members, another).Err())
		cfg := p.config()
		cfg.Lease = time.Hour
		p.wantHolding(t, "3", p.join(t, cfg, new(handledBook).ack))
		taken := 0
		for i := range p.keys() {
			if _, lease := p.lease(t, i); len(lease) > 0 {
				taken++
			}
		}
		if taken != 3 {
			t.Errorf("%d partitions were taken, want 3", taken)
		}
	})
}

// abandon leaves entries pending, and a lease, like a member that crashed.
func (p *parted) abandon(t *testing.T, i int, count int64, lease time.Duration) {
	t.Helper()
	ctx, key := t.Context(), p.keys()[i]
	redistest.Must(t, ignoreBusy(p.client.XGroupCreateMkStream(ctx, key, "shop", "0").Err()))
	redistest.Must(t, p.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "shop", Consumer: "dead", Streams: []string{key, ">"}, Count: count, Block: -1}).Err())
	name, _ := p.lease(t, i)
	redistest.Must(t, p.client.HSet(ctx, name, "owner", "dead", "until", time.Now().Add(lease).UnixMilli()).Err())
}

func TestNewOwnerWaitsForTheLeaseAndBeginsWithUnfinishedMessages(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p, book := newParted(t, client, 1), &handledBook{}
		p.publish(t, 1, 0, 250)
		const lease = time.Second
		begun := time.Now()
		p.abandon(t, 0, 120, lease)
		var first atomic.Int64
		m := p.join(t, p.config(), func(msg *message.RawMessage) {
			first.CompareAndSwap(0, int64(time.Since(begun)))
			book.ack(msg)
		})
		book.wantInOrder(t, 1, 250)
		// The lease ends at a whole millisecond.
		if took := time.Duration(first.Load()); took < lease-50*time.Millisecond {
			t.Errorf("taken over after %v, before the lease has ended", took)
		}
		redistest.Eventually(t, "each delivery to be counted", func() bool { got := m.Stats(); return got.Redelivered == 120 && got.Delivered == 250 })
		consumers, err := client.XInfoConsumers(t.Context(), p.keys()[0], "shop").Result()
		redistest.Must(t, err)
		if len(consumers) != 1 || consumers[0].Name == "dead" {
			t.Errorf("consumers are %+v, want that of the member alone", consumers)
		}
	})
}

// TestNewOwnerTakesOverThoughItsFirstRequestIsLost loses the first request of a new owner. The owner must still take over all
// entries before it delivers any, because the old owner could otherwise commit messages out of order.
func TestNewOwnerTakesOverThoughItsFirstRequestIsLost(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	client := redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.MaxRetries = -1 }) // the client would repeat the request
	p, book := newParted(t, client, 1), &handledBook{}
	p.publish(t, 1, 0, 3)
	p.abandon(t, 0, 3, 0)
	var lost atomic.Bool
	proxy.On(func(cmd []string) respproxy.Action {
		reads := len(cmd) > 4 && strings.EqualFold(cmd[0], "evalsha") && slices.Contains(cmd[3:], p.keys()[0])
		if reads && cmd[len(cmd)-1] == "1" && !lost.Swap(true) {
			return respproxy.CutRequest()
		}
		return respproxy.Pass()
	})
	p.join(t, p.config(), func(msg *message.RawMessage) {
		left, err := p.client.XPendingExt(t.Context(), &redis.XPendingExtArgs{
			Stream: p.keys()[0], Group: "shop", Start: "-", End: "+", Count: 10, Consumer: "dead",
		}).Result()
		if err != nil || len(left) > 0 {
			t.Errorf("%s is given out while the dead member owns %v, %v", msg.ID(), left, err)
		}
		book.ack(msg)
	})
	book.wantInOrder(t, 1, 3)
	if !lost.Load() {
		t.Error("no request was lost")
	}
}

func TestNackedMessageIsRedeliveredBeforeLaterOnes(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, mode := range []string{"subscribe", "consume"} {
			p := newParted(t, client, 2)
			p.publish(t, 5, 0, 20)
			var mu sync.Mutex
			tries := map[string]int{}
			fails := func(id string) bool {
				mu.Lock()
				defer mu.Unlock()
				tries[id]++
				return len(id)%2 == 0 && tries[id] <= 1+len(tries)%3
			}
			cfg := p.config()
			if mode == "consume" {
				p.consume(t, client, cfg, func(_ context.Context, id string) error {
					if fails(id) {
						return errors.New("not yet")
					}
					return nil
				})
				p.wantApplied(t, 5, 20)
				continue
			}
			book := &handledBook{}
			p.join(t, cfg, func(msg *message.RawMessage) {
				if fails(msg.ID()) {
					msg.Nack(errors.New("not yet"))
					return
				}
				book.ack(msg)
			})
			book.wantInOrder(t, 5, 20)
		}
	})
}

func TestPartitionWithMaxDeliveriesContinuesInOrderBehindADeadLetter(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p, book := newParted(t, client, 1), &handledBook{}
		key := p.keys()[0]
		p.publish(t, 1, 0, 1)
		redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []any{"ce_specversion", "9"}}).Err())
		p.publish(t, 1, 1, 3)
		p.publish(t, 1, 7, 8)
		p.publish(t, 1, 3, 5)
		cfg := p.config()
		cfg.MaxDeliveries = 3
		var tries []int
		m := p.join(t, cfg, func(msg *message.RawMessage) {
			if string(msg.Data) != "7" {
				book.ack(msg)
				return
			}
			tries = append(tries, book.count())
			msg.Nack(errors.New("poison"))
		})
		book.wantInOrder(t, 1, 5)
		m.stop()
		if fmt.Sprint(tries) != "[3 3 3]" {
			t.Errorf("the poison came behind %v messages, want three times behind 3", tries)
		}
		var reasons []string
		for dead, err := range stream.DeadLetters(t.Context(), client, stream.DeadLetterKey(key)) {
			redistest.Must(t, err)
			reasons = append(reasons, fmt.Sprintf("%d %.6s", dead.Deliveries, dead.Reason))
		}
		if fmt.Sprint(reasons) != "[1 stream 3 poison]" {
			t.Errorf("dead letters are %q", reasons)
		}
		if got := m.Stats(); got.DeadLettered != 2 || got.Malformed != 1 {
			t.Errorf("stats are %+v", got)
		}
	})
}

func TestMessageThatKilledItsMembersIsNotDeliveredAgain(t *testing.T) {
	t.Parallel()
	f := shared(t)
	p, book := newParted(t, f.client, 1), &handledBook{}
	p.publish(t, 1, 7, 8)
	p.publish(t, 1, 0, 3)
	p.abandon(t, 0, 1, 0)
	redistest.Must(t, f.client.Do(t.Context(), "xclaim", p.keys()[0], "shop", "dead", 0, p.pendingIDs(t)[0], "retrycount", 2).Err())
	cfg := p.config()
	cfg.MaxDeliveries = 2
	p.join(t, cfg, book.ack)
	book.wantInOrder(t, 1, 3)
	p.logs.want(t, logDead, 1)
}

// pendingIDs returns the ids of the pending entries of the first partition.
func (p *parted) pendingIDs(t *testing.T) (ids []string) {
	t.Helper()
	found, err := p.client.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: p.keys()[0], Group: "shop", Start: "-", End: "+", Count: 1000}).Result()
	redistest.Must(t, err)
	for _, e := range found {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestPartitionWithoutMaxDeliveriesStopsAndOthersContinue(t *testing.T) {
	t.Parallel()
	f := shared(t)
	p, book := newParted(t, f.client, 2), &handledBook{}
	keys := p.keys()
	redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: keys[0], Values: []any{"ce_specversion", "9"}}).Err())
	var second string // an aggregate of the other partition
	for i := 0; second == ""; i++ {
		if tag, _ := p.keyspace.Tag(strconv.Itoa(i)); tag == p.keyspace.Tags()[1] {
			second = strconv.Itoa(i)
		}
	}
	pub, err := stream.NewPartitionedPublisher(f.client, p.keyspace, stream.PublisherConfig{Stream: "orders"})
	redistest.Must(t, err)
	for i := range 5 {
		send(t, pub, numbered(second, i))
	}
	redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: keys[0], Values: []any{"type", "late", "data", "0"}}).Err())
	p.join(t, p.config(), book.ack)
	book.wantInOrder(t, 1, 5)
	p.logs.want(t, "stream: partition blocked by a refused message", 1)
}

func TestPartitionSurvivesDeletedGroupStreamAndLease(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := t.Context()
		p := newParted(t, client, 2)
		key := p.keys()[0]
		p.publish(t, 20, 0, 1)
		p.abandon(t, 0, 1, 0)
		redistest.Must(t, client.XDel(ctx, key, p.pendingIDs(t)...).Err())
		var handled sync.Map
		m := p.join(t, p.config(), func(msg *message.RawMessage) { handled.Store(msg.ID(), true); msg.Ack() })
		done := func(n int) func() bool {
			return func() (ok bool) {
				seen := 0
				handled.Range(func(any, any) bool { seen++; return true })
				return seen >= n
			}
		}
		redistest.Eventually(t, "the others", done(19))
		redistest.Must(t, client.XGroupDestroy(ctx, key, "shop").Err())
		p.publish(t, 20, 1, 2)
		redistest.Eventually(t, "what came after the group was deleted", done(39))
		redistest.Must(t, client.Del(ctx, key).Err())
		p.publish(t, 20, 2, 3)
		redistest.Eventually(t, "what came after the stream was deleted", done(59))
		name, _ := p.lease(t, 0)
		redistest.Must(t, client.Del(ctx, name).Err())
		p.publish(t, 20, 3, 4)
		redistest.Eventually(t, "what came after the lease was deleted", done(79))
		if got := m.Stats().Trimmed; got > 1 {
			t.Errorf("%d trimmed, want one at most", got)
		}
	})
}

func TestHangingHandlerWithNoHeartbeatLosesItsPartition(t *testing.T) {
	t.Parallel()
	f := shared(t)
	p, book := newParted(t, f.client, 2), &handledBook{}
	p.publish(t, 4, 0, 3)
	cfg := p.config()
	cfg.Lease, cfg.MaxIdleTime, cfg.NoHeartbeat = 300*time.Millisecond, 100*time.Millisecond, true
	stuck := make(chan *message.RawMessage, 4)
	end := make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	defer release()
	first := p.join(t, cfg, func(msg *message.RawMessage) {
		stuck <- msg
		<-end
		msg.Ack()
	})
	held := []*message.RawMessage{<-stuck, <-stuck}
	p.join(t, cfg, book.ack)
	book.wantInOrder(t, 4, 3)
	release()
	redistest.Eventually(t, "the first one to have a partition again", func() bool { return first.Stats().Holding == 1 })
	for _, msg := range held {
		if msg.Err() != nil {
			t.Error(msg.Err())
		}
	}
}

func TestPartitionedPublisherWritesToThePartitionOfTheAggregate(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	keyspace := luatx.Partitions(16).WithPrefix("shop")
	byKey := func(msg *message.RawMessage) (string, error) { return msg.PartitionKey(), nil }
	pub, err := stream.NewPartitionedPublisher(client, keyspace, stream.PublisherConfig{Stream: "orders", Aggregate: byKey})
	redistest.Must(t, err)
	for i := range 50 {
		aggregate := "order-" + strconv.Itoa(i)
		msg := message.NewRaw(nil, message.Attributes{message.AttrType: "placed", message.AttrPartitionKey: aggregate}, nil)
		send(t, pub, msg)
		key, err := keyspace.Key(aggregate)
		redistest.Must(t, err)
		found := 0
		for _, in := range stream.PartitionKeys(keyspace, "orders") {
			if last := client.XRevRangeN(t.Context(), in, "+", "-", 1).Val(); len(last) > 0 && last[0].Values["ce_id"] == msg.ID() {
				found++
				if slot.Of(in) != slot.Of(key) || !strings.HasPrefix(in, "shop:{") || !strings.HasSuffix(in, "}:orders") {
					t.Errorf("%s is in %s, its keys are %s", aggregate, in, key)
				}
			}
		}
		if found != 1 {
			t.Errorf("%s is in %d streams", aggregate, found)
		}
	}
	errs := pub.Send(t.Context(), message.NewRaw(nil, message.Attributes{message.AttrType: "placed"}, nil))
	if len(errs) != 1 || !message.IsPermanent(errs[0]) || !strings.Contains(errs[0].Error(), "has no aggregate") {
		t.Errorf("without an aggregate: %v", errs)
	}
}

func TestPartitionedSubscriberRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	type cfg = stream.PartitionedConfig
	sixteen := luatx.Partitions(16)
	for says, c := range map[string]struct {
		keyspace luatx.Keyspace
		change   func(*cfg)
	}{
		"the keyspace has no partitions":      {luatx.OwnTags(), func(*cfg) {}},
		"use luatx.Partitions(n) with 1":      {luatx.Partitions(-1), func(*cfg) {}},
		"hides its tag":                       {sixteen.WithPrefix("{a}"), func(*cfg) {}},
		"Stream is empty":                     {sixteen, func(c *cfg) { c.Stream = "" }},
		"SubscriberConfig.Group is empty":     {sixteen, func(c *cfg) { c.Group = "" }},
		"SubscriberConfig.BatchSize is neg":   {sixteen, func(c *cfg) { c.BatchSize = -1 }},
		"PartitionedConfig.Lease is below":    {sixteen, func(c *cfg) { c.Lease = time.Millisecond }},
		"PartitionedConfig.Consumer is set":   {sixteen, func(c *cfg) { c.Consumer = "me" }},
		"PartitionedConfig.MaxInFlight is":    {sixteen, func(c *cfg) { c.MaxInFlight = 1 }},
		"PartitionedConfig.ClaimInterval is":  {sixteen, func(c *cfg) { c.ClaimInterval = time.Second }},
		"PartitionedConfig.DeadLetter is set": {sixteen, func(c *cfg) { c.DeadLetter = "dead" }},
		"PartitionedConfig.TrimAcked is set":  {sixteen, func(c *cfg) { c.TrimAcked = true }},
		"client of the Subscriber is nil":     {sixteen, nil},
	} {
		config := cfg{SubscriberConfig: stream.SubscriberConfig{Stream: "orders", Group: "g"}}
		var with redis.UniversalClient = client
		if c.change == nil {
			with = nil
		} else {
			c.change(&config)
		}
		if _, err := stream.NewPartitionedSubscriber(with, c.keyspace, config); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v, want %q", err, says)
		}
	}
	other := stream.PublisherConfig{Stream: "s", StreamFor: func(*message.RawMessage) (string, error) { return "", nil }}
	_, noParts := stream.NewPartitionedPublisher(client, luatx.OwnTags(), stream.PublisherConfig{Stream: "s"})
	_, both := stream.NewPartitionedPublisher(client, sixteen, other)
	_, plain := stream.NewPublisher(client, stream.PublisherConfig{Stream: "s", Aggregate: other.StreamFor})
	for says, err := range map[string]error{"no partitions": noParts, "StreamFor is set": both, "use NewPartitionedPublisher": plain} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v, want %q", err, says)
		}
	}
}

func TestPartitionedSubscriberSubscribesAgainOnlyAfterItsEnd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	p := newParted(t, f.client, 2)
	m := p.join(t, p.config(), func(msg *message.RawMessage) { msg.Ack() })
	if _, err := m.Subscribe(t.Context()); !errors.Is(err, stream.ErrSubscribed) {
		t.Errorf("error %v, want ErrSubscribed", err)
	}
	if err := m.Consume(t.Context(), nil, nil); err == nil {
		t.Error("Consume took nothing for something")
	}
	m.stop()
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := m.Subscribe(ctx)
	redistest.Must(t, err)
	cancel()
	for msg := range ch {
		msg.Release()
	}
}
