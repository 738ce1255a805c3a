package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx/contrib/kafka"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

func TestPositionNamesTopicPartitionOffsetAndTheTopicsID(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "in")
	c.put("in", 0, "0", "1", "2")
	c.put("in", 1, "3")
	m := c.join("in")
	seen := map[string][]string{}
	var all []message.Position
	for range 4 {
		msg := next(t, m.in)
		at, ok := msg.Position()
		if !ok || at.Source != "kafka://in" || at.After != "" || at.Tenure == nil || at.Tenure.Shared || len(at.Epoch) != 32 || at.Epoch == strings.Repeat("0", 32) {
			t.Errorf("%s has the position %+v", msg.Data, at)
		}
		seen[at.Partition] = append(seen[at.Partition], at.Offset)
		all = append(all, at)
		msg.Ack()
	}
	if got, want := fmt.Sprint(seen), fmt.Sprintf("map[0:[%020d %020d %020d] 1:[%020d]]", 0, 1, 2, 0); got != want {
		t.Errorf("the offsets are %s, want %s", got, want)
	}
	tenures := map[string]*message.Tenure{}
	for _, at := range all {
		if tenures[at.Partition] == nil {
			tenures[at.Partition] = at.Tenure
		}
		if tenures[at.Partition] != at.Tenure {
			t.Errorf("partition %s changed its tenure without a rebalance", at.Partition)
		}
	}
	if tenures["0"] == tenures["1"] {
		t.Error("two partitions share a tenure")
	}
}

func TestAssignmentStartsANewTenureAndARecreatedTopicANewEpoch(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "in")
	c.put("in", 0, "0")
	position := func() message.Position {
		m := c.join("in")
		defer m.leave()
		at, _ := next(t, m.in).Position() // it stays without an ack
		return at
	}
	first, second := position(), position()
	if first.Tenure == second.Tenure || first.Epoch != second.Epoch || first.Offset != second.Offset {
		t.Errorf("the positions are %+v and %+v", first, second)
	}
	c.recreate("in")
	c.put("in", 0, "0")
	if third := position(); third.Epoch == first.Epoch || third.Offset != first.Offset || third.Source != first.Source {
		t.Errorf("the position is %+v in the first topic and %+v in the second", first, third)
	}
}

func TestOrderedNamesTheSettingThatLosesTheOrder(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "in")
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	for want, test := range map[string]struct {
		cfg  kafka.SubscriberConfig
		opts []kgo.Opt
	}{
		"":                                {opts: []kgo.Opt{start}},
		"SubscriberConfig.Concurrency is": {cfg: kafka.SubscriberConfig{Concurrency: 2}, opts: []kgo.Opt{start}},
		"SubscriberConfig.MaxDeliveries":  {cfg: kafka.SubscriberConfig{MaxDeliveries: 5}, opts: []kgo.Opt{start}},
		"kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())": {opts: []kgo.Opt{kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd())}},
		"without kgo.ConsumeStartOffset":                    {opts: []kgo.Opt{start, kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd())}},
		"may skip records":                                  {opts: []kgo.Opt{}},
		"has no client":                                     {},
	} {
		sub, err := kafka.NewSubscriber(test.cfg)
		redistest.Must(t, err)
		if test.opts != nil {
			c.client(append(append(sub.Options(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in")), test.opts...)...)
		}
		if err := sub.Ordered(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Ordered returned %v, want %q", err, want)
		}
	}
}

func TestEngineRejectsPositionsOfASubscriberThatMaySkipRecords(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "in")
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{})
	redistest.Must(t, err)
	c.client(append(sub.Options(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))...)
	engine := message.NewEngine(message.EngineConfig{})
	ordered := message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc { return next }, message.Traits{Name: "inbox.Position", Ordered: true})
	redistest.Must(t, errors.Join(engine.Router().Use(ordered), engine.AddSubscriber("in", nil, sub)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if unsafe, ok := errors.AsType[*message.WiringError](engine.Run(ctx)); !ok || !strings.Contains(unsafe.Problem, "may skip records") {
		t.Errorf("Run returned %v", unsafe)
	}
}
