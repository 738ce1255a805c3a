package trigger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

// channelConfig configures a trigger that records the messages of channels.
func channelConfig(t testing.TB, connector trigger.Connector, heard *effects, channels ...string) trigger.Config {
	t.Helper()
	return trigger.Config{
		Connector: connector, Mode: trigger.ModePubSub, Channels: channels,
		Run: heard.of(t),
	}
}

func publish(t testing.TB, client redis.UniversalClient, channel, data string) {
	t.Helper()
	redistest.Must(t, client.Publish(t.Context(), channel, data).Err())
}

func TestPubSubRunsFunctionForChannelsAndPatterns(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tag, heard := redistest.Tag(t), &effects{}
		cfg := channelConfig(t, trigger.Connector{Client: client}, heard, tag+".a", tag+".b")
		cfg.Patterns = []string{tag + ".x*"}
		cfg.Run = func(_ context.Context, msg *message.RawMessage) error {
			p := payload(t, msg)
			if msg.Type() != trigger.TypePubSub || msg.ID() == "" || msg.Source() != p.Channel || len(p.Attributes) != 0 || p.Attributes == nil {
				t.Errorf("message %v, payload %s", msg.Attributes, msg.Data)
			}
			heard.add(p.Channel + p.Pattern + " " + string(p.Body.Base64))
			return errors.New("nobody is told")
		}
		cfg.Observer = trigger.Observer{Executed: func(_ context.Context, e trigger.Executed) {
			if e.Result != trigger.Dropped || e.Transport != "redis.pubsub" || e.Err == nil {
				t.Errorf("reported %+v", e)
			}
		}}
		tr := begin(t, cfg)
		for i, channel := range []string{".a", ".b", ".c", ".xy"} {
			publish(t, client, tag+channel, fmt.Sprint(i))
			if channel != ".c" {
				redistest.Eventually(t, channel, heard.has(min(i+1, 3)))
			}
		}
		wantEffects(t, heard, []string{tag + ".a 0", tag + ".b 1", tag + ".xy" + tag + ".x* 3"})
		redistest.Eventually(t, "the failures to be counted", func() bool { return tr.Stats().Dropped == 3 })
		if got := tr.Stats(); got.Failed != 3 || got.Acked != 0 || got.Delivered != 3 || got.Gaps.Count != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestShardChannelsOfSeveralSlotsAreReceived(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, client redis.UniversalClient) {
		tag, heard := redistest.Tag(t), &effects{}
		channels := []string{"{" + tag + "1}a", "{" + tag + "2}", "{" + tag + "3}", "{" + tag + "1}b"}
		cfg := channelConfig(t, trigger.Connector{Client: client}, heard, channels...)
		cfg.Sharded = true
		begin(t, cfg)
		for i, channel := range channels {
			redistest.Must(t, client.SPublish(t.Context(), channel, fmt.Sprint(i+1)).Err())
			redistest.Eventually(t, channel, heard.has(i+1))
		}
		wantEffects(t, heard, numbers(1, 4))
	}
	if bin, err := redistest.Find(); err == nil && !bin.AtLeast(7, 0) {
		t.Skip("shard channels came with Redis 7.0")
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Shared(t).Client(t))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.SharedCluster(t).Client(t))
	})
}

func TestTriggerFollowsTheSlotOfItsChannel(t *testing.T) {
	t.Parallel()
	if bin, err := redistest.Find(); err == nil && !bin.AtLeast(7, 0) {
		t.Skip("shard channels came with Redis 7.0")
	}
	cluster, heard, ctx := redistest.Cluster(t), &effects{}, redistest.Soon(t)
	client := cluster.Client(t)
	cfg := channelConfig(t, trigger.Connector{URL: "redis://" + cluster.Addrs()[0], Cluster: true}, heard, "news")
	cfg.Sharded = true
	tr := begin(t, cfg)
	from, err := cluster.NodeForSlot(ctx, slot.Of("news"))
	redistest.Must(t, err)
	masters, err := cluster.Masters(ctx)
	redistest.Must(t, err)
	to := masters[slices.IndexFunc(masters, func(s *redistest.Server) bool { return s != from })]
	redistest.Must(t, cluster.MigrateSlot(ctx, slot.Of("news"), to))
	redistest.Eventually(t, "the trigger to follow", func() bool { return tr.Stats().Reconnects > 0 && tr.Health().Ready })
	redistest.Eventually(t, "it to hear", func() bool {
		return client.SPublish(ctx, "news", "x").Err() == nil && len(heard.list()) > 0
	})
}

func TestGapsAreCountedWithTheirLength(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	client, tag, heard := server.Client(t), redistest.Tag(t), &effects{}
	tr := begin(t, channelConfig(t, trigger.Connector{URL: "redis://" + proxy.Addr()}, heard, tag))
	publish(t, client, tag, "1")
	wantEffects(t, heard, numbers(1, 1))
	const refused = 5
	stop := proxy.Next(refused, respproxy.Command("SUBSCRIBE"), respproxy.CutRequest())
	defer stop()
	from := time.Now()
	proxy.CutAll()
	redistest.Eventually(t, "a gap", func() bool { return tr.Stats().Gaps.Count == 1 && !tr.Stats().Gaps.Last.Until.IsZero() })
	publish(t, client, tag, "2")
	wantEffects(t, heard, numbers(1, 2))
	gaps := tr.Stats().Gaps
	if length := gaps.Last.Until.Sub(gaps.Last.From); length != gaps.Total || gaps.Last.Until.Before(from) || gaps.Last.From.After(gaps.Last.Until) {
		t.Errorf("%+v", gaps)
	}
	if gaps.Last.From.After(from.Add(time.Second)) {
		t.Errorf("the gap begins at %v, the connection was cut at %v", gaps.Last.From, from)
	}
	if got := tr.Stats(); got.Reconnects != 1 || proxy.Count("SUBSCRIBE") <= refused {
		t.Errorf("%+v, %d subscriptions", got, proxy.Count("SUBSCRIBE"))
	}
	proxy.CutAll()
	redistest.Eventually(t, "another gap", func() bool { return tr.Stats().Gaps.Count == 2 && tr.Stats().Gaps.Total > gaps.Total })
}

func TestSilentConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	tag, heard := redistest.Tag(t), &effects{}
	tr := begin(t, channelConfig(t, trigger.Connector{URL: "redis://" + proxy.Addr()}, heard, tag))
	proxy.Next(1, respproxy.Command("PING"), respproxy.DropRequest())
	redistest.Eventually(t, "the silence to be noticed", func() bool { return tr.Stats().Reconnects == 1 })
	if gap := tr.Stats().Gaps.Last; gap.Until.Sub(gap.From) < 5*time.Second {
		t.Errorf("%+v", gap)
	}
	assert.ErrorContains(t, tr.Health().LastError, "did not reply", "the silence")
	if proxy.Count("PING") == 0 {
		t.Error("the connection was replaced without a ping")
	}
	publish(t, server.Client(t), tag, "1")
	wantEffects(t, heard, numbers(1, 1))
}

func TestMessagesWaitForASlowFunctionInOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client, tag, heard, free := server.Client(t), redistest.Tag(t), &effects{}, make(chan struct{})
	cfg := channelConfig(t, trigger.Connector{Client: client}, heard, tag)
	note := cfg.Run
	cfg.Run = func(ctx context.Context, msg *message.RawMessage) error {
		<-free
		return note(ctx, msg)
	}
	begin(t, cfg)
	for n := 1; n <= 500; n++ {
		publish(t, client, tag, fmt.Sprint(n))
	}
	close(free)
	wantEffects(t, heard, numbers(1, 500))
}

func TestMessageWithoutPayloadBecomesADeadLetterIfAKeyIsSet(t *testing.T) {
	t.Parallel()
	for _, letters := range []bool{true, false} {
		t.Run(fmt.Sprint(letters), func(t *testing.T) {
			t.Parallel()
			client, tag, heard := redistest.Shared(t).Client(t), redistest.Tag(t), &effects{}
			cfg := channelConfig(t, trigger.Connector{Client: client}, heard)
			cfg.Patterns = []string{tag + "*"}
			if letters {
				cfg.DeadLetter = tag
			}
			tr := begin(t, cfg)
			publish(t, client, tag+"\xff", "1")
			publish(t, client, tag, "2")
			wantEffects(t, heard, []string{"2"})
			if got := tr.Stats(); got.DeadLettered+got.Dropped != 1 || (got.DeadLettered == 1) != letters || got.Failed != 1 {
				t.Errorf("%+v", got)
			}
			if n := client.XLen(t.Context(), tag).Val(); (n == 1) != letters {
				t.Errorf("%d dead letters", n)
			}
		})
	}
}

func TestMessagesBetweenTwoConfirmationsAreDelivered(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	client, tag, heard := server.Client(t), redistest.Tag(t), &effects{}
	hold := proxy.Hold(respproxy.Command("PSUBSCRIBE"))
	cfg := channelConfig(t, trigger.Connector{URL: "redis://" + proxy.Addr()}, heard, tag)
	cfg.Patterns = []string{tag + ".*"}
	tr := start(t, cfg)
	redistest.Must(t, hold.Wait(redistest.Soon(t)))
	redistest.Eventually(t, "the first confirmation", func() bool { return client.PubSubNumSub(t.Context(), tag).Val()[tag] == 1 })
	publish(t, client, tag, "1")
	hold.Release()
	redistest.Eventually(t, "the trigger to begin", func() bool { return tr.Health().Ready })
	publish(t, client, tag+".x", "2")
	wantEffects(t, heard, numbers(1, 2))
}

func TestReplacedSubscriptionsLeaveAGap(t *testing.T) {
	t.Parallel()
	client, tag, heard := redistest.Shared(t).Client(t), redistest.Tag(t), &effects{}
	cfg := channelConfig(t, trigger.Connector{Client: client}, heard)
	cfg.Patterns, cfg.DeadLetter = []string{tag + "*"}, tag
	redistest.Must(t, client.Set(t.Context(), tag, "no stream", time.Minute).Err())
	tr := begin(t, cfg)
	publish(t, client, tag+"\xff", "1") // its dead letter cannot be written, and the trigger reconnects
	redistest.Eventually(t, "a reconnect", func() bool { return tr.Stats().Reconnects > 0 })
	if gaps := tr.Stats().Gaps; gaps.Count == 0 || gaps.Last.From.IsZero() {
		t.Errorf("%+v", gaps)
	}
	redistest.Must(t, client.Del(t.Context(), tag).Err())
	redistest.Eventually(t, "the dead letter", func() bool { return tr.Stats().DeadLettered == 1 })
}
