package trigger_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

func TestDriversPassTheSuite(t *testing.T) {
	t.Parallel()
	run := func(context.Context, *message.RawMessage) error { return nil }
	for name, mode := range map[string]func(c *trigger.Config, key string){
		"group":  func(c *trigger.Config, key string) { c.Mode, c.Stream, c.Group = trigger.ModeStream, key, "g" },
		"plain":  func(c *trigger.Config, key string) { c.Mode, c.Stream, c.LastID = trigger.ModeStream, key, "0" },
		"pubsub": func(c *trigger.Config, key string) { c.Mode, c.Channels = trigger.ModePubSub, []string{key} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			luatxtest.TestDriver(t, func(t testing.TB) luatxtest.DriverTarget {
				t.Helper()
				client, key := redistest.Shared(t).Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }), redistest.Tag(t)
				cfg := trigger.Config{Function: "f", Run: run, Connector: trigger.Connector{Client: client}, BlockTimeout: 100 * time.Millisecond}
				mode(&cfg, key)
				driver, err := trigger.NewDriver(cfg)
				redistest.Must(t, err)
				target := luatxtest.DriverTarget{Driver: driver, Send: func(ctx context.Context, text string) error {
					return client.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"data", text}}).Err()
				}}
				switch name {
				case "group":
					target.Open = func(ctx context.Context) (int, error) {
						pending, err := client.XPending(ctx, key, "g").Result()
						if err != nil {
							return 0, err
						}
						return int(pending.Count), nil
					}
				case "pubsub":
					target.Send = func(ctx context.Context, text string) error { return client.Publish(ctx, key, text).Err() }
				}
				return target
			})
		})
	}
}
