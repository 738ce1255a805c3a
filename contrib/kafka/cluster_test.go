package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/luatx/luatx/contrib/kafka"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

func TestMain(m *testing.M) {
	if args, ok := brokertest.Member(); ok {
		fmt.Fprintln(os.Stderr, "the member ended:", memberMain(args))
		os.Exit(1)
	}
	redistest.Main(m)
}

var (
	next  = brokertest.Next
	event = brokertest.Event
)

// cluster is a Kafka cluster inside this process.
type cluster struct {
	t testing.TB
	*kfake.Cluster
	down    atomic.Bool // rejects records
	forgets atomic.Bool // rejects offsets
}

func newCluster(t testing.TB, partitions int32, topics ...string) *cluster {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	redistest.Must(t, err)
	t.Cleanup(fake.Close)
	c := &cluster{t: t, Cluster: fake}
	fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if !c.down.Load() {
			return nil, nil, false
		}
		fake.KeepControl()
		return nil, errors.New("down"), true
	})
	fake.ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req, ok := kreq.(*kmsg.OffsetCommitRequest)
		if !c.forgets.Load() || !ok {
			return nil, nil, false
		}
		fake.KeepControl()
		return refuse(req), nil, true
	})
	return c
}

func refuse(req *kmsg.OffsetCommitRequest) kmsg.Response {
	resp, _ := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, of := range req.Topics {
		topic := kmsg.NewOffsetCommitResponseTopic()
		topic.Topic, topic.TopicID = of.Topic, of.TopicID
		for _, p := range of.Partitions {
			partition := kmsg.NewOffsetCommitResponseTopicPartition()
			partition.Partition, partition.ErrorCode = p.Partition, kerr.GroupAuthorizationFailed.Code
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

func (c *cluster) client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.ListenAddrs()...), kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
		kgo.MetadataMinAge(20 * time.Millisecond), kgo.FetchMaxWait(100 * time.Millisecond), kgo.HeartbeatInterval(50 * time.Millisecond),
		kgo.SessionTimeout(5 * time.Second),
	}, opts...)...)
	redistest.Must(c.t, err)
	c.t.Cleanup(client.Close)
	return client
}

func (c *cluster) publisher(change ...func(*kafka.PublisherConfig)) *kafka.Publisher {
	c.t.Helper()
	cfg := kafka.PublisherConfig{Timeout: time.Second}
	for _, ch := range change {
		ch(&cfg)
	}
	p, err := kafka.NewPublisher(c.client(), cfg)
	redistest.Must(c.t, err)
	return p
}

// put produces plain records to one partition in order.
func (c *cluster) put(topic string, partition int32, values ...string) {
	c.t.Helper()
	client := c.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, v := range values {
		redistest.Must(c.t, client.ProduceSync(c.t.Context(), &kgo.Record{Topic: topic, Partition: partition, Key: []byte("key"), Value: []byte(v)}).FirstErr())
	}
}

// member is a Subscriber with its client.
type member struct {
	in     <-chan *message.RawMessage
	client *kgo.Client
	end    func() // ends the subscription
	leave  func() // ends the subscription and closes the client
}

func (c *cluster) join(topic string, change ...func(*kafka.SubscriberConfig)) *member {
	c.t.Helper()
	cfg := kafka.SubscriberConfig{
		CommitInterval: 20 * time.Millisecond, NackBackoff: message.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, ch := range change {
		ch(&cfg)
	}
	sub, err := kafka.NewSubscriber(cfg)
	redistest.Must(c.t, err)
	client := c.client(append(sub.Options(), kgo.ConsumerGroup("service-"+topic), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	ctx, cancel := context.WithCancel(context.Background())
	in, err := sub.Subscribe(ctx)
	redistest.Must(c.t, err)
	m := &member{in: in, client: client}
	m.end = sync.OnceFunc(func() {
		cancel()
		for msg := range in { // like a router
			msg.Nack(message.ErrStopped)
		}
	})
	m.leave = func() {
		m.end()
		client.Close()
	}
	c.t.Cleanup(m.leave)
	return m
}

// committed returns the committed offset of a partition, or 0 if there is none.
func (c *cluster) committed(topic string, partition int32) int64 {
	c.t.Helper()
	return c.offset("service-"+topic, topic, partition)
}

// offset returns the committed offset of a group, or 0 if there is none.
func (c *cluster) offset(group, topic string, partition int32) int64 {
	c.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	of := kmsg.NewOffsetFetchRequestTopic()
	of.Topic, of.Partitions = topic, []int32{partition}
	req.Group, req.Topics = group, []kmsg.OffsetFetchRequestTopic{of}
	g := kmsg.NewOffsetFetchRequestGroup()
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.Partitions = topic, []int32{partition}
	g.Group, g.Topics = group, []kmsg.OffsetFetchRequestGroupTopic{gt}
	req.Groups = []kmsg.OffsetFetchRequestGroup{g}
	resp, err := req.RequestWith(context.Background(), c.client())
	redistest.Must(c.t, err)
	var at int64
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			at = max(at, p.Offset)
		}
	}
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				at = max(at, p.Offset)
			}
		}
	}
	return at
}

// records returns the first n records of a topic.
func (c *cluster) records(topic string, n int) []*kgo.Record {
	c.t.Helper()
	client := c.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	var all []*kgo.Record
	for len(all) < n && ctx.Err() == nil {
		all = append(all, client.PollFetches(ctx).Records()...)
	}
	return all
}

// recreate deletes a topic and creates it again with one partition.
func (c *cluster) recreate(topic string) {
	c.t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	of := kmsg.NewDeleteTopicsRequestTopic()
	of.Topic = &topic
	req.TopicNames, req.Topics = []string{topic}, []kmsg.DeleteTopicsRequestTopic{of}
	_, err := req.RequestWith(c.t.Context(), c.client())
	redistest.Must(c.t, err)
	redistest.Must(c.t, c.CreateTopic(topic, 1, nil))
}
