package commit_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

// TestGatheredInOrder holds that messages which commit together stand in the order of their entries, however they came
// and however long the numbers in their ids are: the script then sees who owns them at one look.
func TestGatheredInOrder(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Single(t, redistest.Own()).Client(t), t.Context()
	tr := rig.NewTransactor(t, client)
	in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
	mw, err := stack.Scripted(tr, stack.Config{RelayElsewhere: true})
	if err != nil {
		t.Fatal(err)
	}
	r := rig.NewRouter(t, message.PipeConfig{}, mw, func(ctx context.Context) ([]*message.Message, error) {
		return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, rig.Key(t, tr, "a", "n")))
	})
	entries := []string{"1-10", "2-1", "2-100", "10-0", "10-2"}
	for _, entry := range entries {
		client.XAdd(ctx, &redis.XAddArgs{Stream: in.Stream, ID: entry, Values: []any{"id", entry}})
	}
	client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{in.Stream, ">"}})
	client.ConfigResetStat(ctx)
	g := link.Of(tr).Gather(ctx, len(entries), 0, nil)
	var handlers sync.WaitGroup
	for _, entry := range entries {
		handlers.Go(func() {
			defer g.Leave()
			if _, err := r.Process(g.Context(ctx), in.Message("c", entry, rig.Order(entry))); err != nil {
				t.Error(err)
			}
		})
	}
	handlers.Wait()
	if stats := client.Info(ctx, "commandstats").Val(); !strings.Contains(stats, "cmdstat_xpending:calls=1,") {
		t.Errorf("more looks than one: %s", stats)
	}
	if n := in.Pending(); n != 0 {
		t.Errorf("%d entries are pending", n)
	}
}
