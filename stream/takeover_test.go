package stream_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func TestEntryIsTakenOverOnceItHasBeenIdleForTheLimit(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	ctx, start := redistest.Soon(t), time.Now()
	server.SetTime(start)
	redistest.Must(t, client.XGroupCreateMkStream(ctx, "s", "shop", "0").Err())
	entry, err := client.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: []string{"f", "v"}}).Result()
	redistest.Must(t, err, client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "shop", Consumer: "late", Streams: []string{"s", ">"}}).Err())
	server.SetTime(start.Add(time.Second))
	for _, c := range []struct{ limit, want int }{{1001, 0}, {1000, 1}} {
		taken, err := client.Eval(ctx, lua.Script("takeover", nil), []string{"s", group.TakenKey("s")}, "shop", "me", c.limit, entry, "1-1").StringSlice()
		if err != nil || len(taken) != c.want || c.want > 0 && taken[0] != entry {
			t.Errorf("%q of %s and an unknown entry were idle for %d ms, want %d; %v", taken, entry, c.limit, c.want, err)
		}
	}
}

// The inbox has no dead letters, so only the fence keeps the former consumer from applying one.
func TestConsumerCommitsNothingThatItsSuccessorDeadLettered(t *testing.T) {
	t.Parallel()
	refused := message.Permanent(errors.New("never"))
	for name, succeed := range map[string]func(t *testing.T, p *parted){
		"subscriber": func(t *testing.T, p *parted) {
			t.Helper()
			cfg := p.config().SubscriberConfig
			cfg.Stream, cfg.DeadLetter, cfg.MaxDeliveries = p.keys()[0], stream.DeadLetterKey(p.keys()[0]), 9
			cfg.MaxIdleTime, cfg.ClaimInterval = time.Millisecond, 10*time.Millisecond
			sub, err := stream.NewSubscriber(p.client, cfg)
			redistest.Must(t, err)
			successor := run(t, sub)
			for range 3 {
				successor.next(t).Nack(refused)
			}
		},
		"member of a partition": func(t *testing.T, p *parted) {
			t.Helper()
			cfg := p.config()
			cfg.MaxDeliveries = 9
			p.join(t, cfg, func(msg *message.RawMessage) { msg.Nack(refused) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				ctx, p := redistest.Soon(t), newParted(t, client, 1)
				tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Keyspace = p.keyspace })
				key, effects := p.keys()[0], rig.Key(t, tr, "a0", "effects")
				router := message.NewRouter(message.PipeConfig{})
				redistest.Must(t, router.Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{})))
				redistest.Must(t, router.AddHandler("orders", nil, message.NewHandler(
					func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
						return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, effects))
					})))

				redistest.Must(t, client.XGroupCreateMkStream(ctx, key, "shop", "0").Err())
				p.publish(t, 1, 0, 3)
				read, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "shop", Consumer: "late", Streams: []string{key, ">"}}).Result()
				redistest.Must(t, err)
				var late []*message.Message
				for i, entry := range read[0].Messages {
					late = append(late, message.New(nil, numbered("a0", i).Attributes, message.NewAckingFrom(message.AckingConfig{
						Source: message.Source{Stream: key, Group: "shop", Consumer: "late", Entry: entry.ID},
					})))
				}
				succeed(t, p)
				redistest.Eventually(t, "three dead letters", func() bool { return client.XLen(ctx, stream.DeadLetterKey(key)).Val() == 3 })

				process := func(ctx context.Context, msg *message.Message) {
					if _, err := router.Process(ctx, msg); !errors.Is(err, luatx.ErrFenced) {
						t.Errorf("the commit of dead letter %s: %v", msg.ID(), err)
					}
				}
				process(ctx, late[0])
				g := link.Of(tr).Gather(ctx, 2, 0, nil)
				var handlers sync.WaitGroup
				for _, msg := range late[1:] {
					handlers.Go(func() {
						defer g.Leave()
						process(g.Context(ctx), msg)
					})
				}
				handlers.Wait()
				if n := client.Exists(ctx, effects).Val(); n != 0 {
					t.Error("a dead letter was applied")
				}
			})
		})
	}
}
