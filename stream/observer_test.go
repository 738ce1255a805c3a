package stream_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// observed records the notifications of an Observer.
type observed struct {
	mu        sync.Mutex
	delivered []stream.Delivered
	settled   []stream.Settled
	dead      []stream.DeadLettered
}

func (o *observed) observer() stream.Observer {
	return stream.Observer{
		Delivered: func(_ context.Context, d stream.Delivered) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.delivered = append(o.delivered, d)
		},
		Settled: func(_ context.Context, s stream.Settled) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.settled = append(o.settled, s)
		},
		DeadLettered: func(_ context.Context, d stream.DeadLettered) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.dead = append(o.dead, d)
		},
	}
}

func TestObserverReceivesEachSettlementWithItsDeliveries(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f, seen := newFixture(t, client), &observed{}
		ids := f.add(t, "bad", "good", "another's")
		cfg := f.config()
		cfg.MaxDeliveries, cfg.Consumer = 2, "me"
		cfg.Observer = stream.Observer{Settled: func(context.Context, stream.Settled) { panic("an observer's") }}.And(seen.observer())
		sub := f.subscribe(t, cfg)
		cause := errors.New("no")
		for range 4 {
			switch msg := sub.next(t); string(msg.Data) {
			case "bad":
				msg.Nack(cause)
			case "good":
				msg.Ack()
			default:
				msg.Release()
			}
		}
		f.logs.want(t, logDead, 1)
		seen.mu.Lock()
		defer seen.mu.Unlock()
		source := message.Source{Stream: f.key, Group: "shop", Consumer: "me", Entry: ids[0]}
		of := func(entry string) (deliveries []int64, released bool, errs int) {
			for _, s := range seen.settled {
				if s.Source.Entry != entry {
					continue
				}
				if deliveries = append(deliveries, s.Deliveries); errors.Is(s.Err, cause) {
					errs++
				}
				released = released || s.Released
				if s.Duration < 0 || s.Duration > patience {
					t.Errorf("%+v took %v", s.Source, s.Duration)
				}
			}
			return deliveries, released, errs
		}
		if n, released, errs := of(ids[0]); !slices.Equal(n, []int64{1, 2}) || released || errs != 2 {
			t.Errorf("the bad one: deliveries %v, released %t, %d nacks", n, released, errs)
		}
		if n, released, errs := of(ids[1]); !slices.Equal(n, []int64{1}) || released || errs != 0 {
			t.Errorf("the good one: deliveries %v, released %t, %d nacks", n, released, errs)
		}
		if _, released, _ := of(ids[2]); !released {
			t.Error("nobody was told of the release")
		}
		if len(seen.delivered) != 4 || seen.delivered[0].Source != source || seen.delivered[3].Deliveries != 2 {
			t.Errorf("delivered %+v", seen.delivered)
		}
		if len(seen.dead) != 1 || seen.dead[0].Source != source || seen.dead[0].Deliveries != 2 || seen.dead[0].Reason != "no" {
			t.Errorf("dead letters %+v", seen.dead)
		}
	})
}

func TestObserverReceivesMessagesOfPartitionsSingleAndInBatches(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	name := redistest.Namespace(t)
	space := luatx.Partitions(2).WithPrefix(name)
	tr, err := luatx.New(client, luatx.Config{Namespace: name, Keyspace: space})
	redistest.Must(t, err)
	out, err := stream.NewPartitionedPublisher(client, space, stream.PublisherConfig{Stream: "orders"})
	redistest.Must(t, err)
	for _, consume := range []bool{false, true} {
		seen, group := &observed{}, map[bool]string{false: "ones", true: "batches"}[consume]
		sub, err := stream.NewPartitionedSubscriber(client, space, stream.PartitionedConfig{SubscriberConfig: stream.SubscriberConfig{
			Stream: "orders", Group: group, BlockTimeout: 20 * time.Millisecond, Observer: seen.observer(), StartID: "$",
		}})
		redistest.Must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		if consume {
			running.Go(func() {
				_ = sub.Consume(ctx, tr, stream.ProcessFunc(func(_ context.Context, msg *message.RawMessage) error { msg.Ack(); return nil }))
			})
		} else {
			ch, err := sub.Subscribe(ctx)
			redistest.Must(t, err)
			running.Go(func() {
				for msg := range ch {
					msg.Ack()
				}
			})
		}
		redistest.Eventually(t, "the partitions to be held", func() bool { return sub.Stats().Holding == 2 })
		for id := range strings.SplitSeq("abcdef", "") {
			errs := out.Send(t.Context(), message.NewRaw(nil, message.Attributes{"id": id, "type": "t", "source": "/s", "subject": id}, nil))
			redistest.Must(t, errors.Join(errs...))
		}
		redistest.Eventually(t, "the observer to hear of six", func() bool {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			return len(seen.settled) == 6
		})
		cancel()
		running.Wait()
		if len(seen.delivered) != 6 || seen.settled[0].Err != nil || seen.settled[0].Source.Group != group || seen.delivered[0].Deliveries != 1 {
			t.Errorf("consume %t: observed %+v and %+v", consume, seen.delivered, seen.settled)
		}
	}
}
