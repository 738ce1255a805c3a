package cluster_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// TestConsumeWithDurabilityCommitsOnEveryMasterAndReadsFromAnother checks that a batch with transactions of all masters needs no
// second attempt, and that the read behind it reaches the master of the stream.
func TestConsumeWithDurabilityCommitsOnEveryMasterAndReadsFromAnother(t *testing.T) {
	t.Parallel()
	cluster, log := redistest.SharedCluster(t), &rig.Lines{}
	client, ctx := cluster.Client(t), redistest.Soon(t)
	var tries atomic.Int64
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Durability = luatx.Durability{Replicas: 1, Timeout: 500 * time.Millisecond}
		c.Observer.Committed = func(_ context.Context, o luatx.Commit) { tries.Add(int64(o.Attempts)) }
	})
	var aggregates []string
	found := make(map[string]bool)
	for i := 0; len(found) < 3; i++ {
		name := "a" + strconv.Itoa(i)
		node, err := cluster.NodeForSlot(ctx, slot.OfTag(name))
		redistest.Must(t, err)
		if !found[node.Addr()] {
			found[node.Addr()] = true
			aggregates = append(aggregates, name)
		}
	}
	in, counter := rig.Key(t, tr, "s", "in"), func(aggregate string) string { return rig.Key(t, tr, aggregate, "n") }
	for i := range 90 {
		rig.Publish(t, client, in, message.Attributes{"id": strconv.Itoa(i), "source": "/s", "type": "x", "subject": aggregates[i%3]})
	}
	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{Stream: in, Group: "g", BatchSize: 9, Logger: log.Logger()})
	redistest.Must(t, err)
	router := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
		attrs, _ := message.AttributesFromContext(ctx)
		key := counter(attrs.Subject())
		return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, key))
	})
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- sub.Consume(running, tr, router) }()
	for _, aggregate := range aggregates {
		redistest.Eventually(t, "30 messages of "+aggregate, func() bool { return client.Get(ctx, counter(aggregate)).Val() == "30" })
	}
	stop()
	redistest.Must(t, <-done)
	assert.Equal(t, tries.Load(), int64(90), "round trips of 90 commits")
	if n := log.Count("subscriber failed"); n > 0 {
		t.Errorf("%d failures of the subscriber:\n%s", n, log)
	}
}
