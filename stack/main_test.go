package stack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// mode is one of the two modes that services choose from.
type mode struct {
	name string
	wire func(*service) (message.Middleware, error)
}

var modes = []mode{
	{"pipelined", func(s *service) (message.Middleware, error) { return stack.Pipelined(s.client, s.cfg) }},
	{"scripted", func(s *service) (message.Middleware, error) { return stack.Scripted(s.transactor, s.cfg) }},
}

// service is a billing service with two partitions and unique keys. Except for its mode, it does not depend on how messages are
// applied.
type service struct {
	t          testing.TB
	mode       mode
	client     redis.UniversalClient
	keyspace   luatx.Keyspace
	transactor *luatx.Transactor
	cfg        stack.Config
	name       string
	subs       []*stream.Subscriber
}

func newService(t testing.TB, client redis.UniversalClient, m mode) *service {
	t.Helper()
	return namedService(t, client, m, redistest.Namespace(t))
}

// namedService returns a service with keys that other processes know.
func namedService(t testing.TB, client redis.UniversalClient, m mode, name string) *service {
	t.Helper()
	keyspace := luatx.Partitions(2).WithPrefix(name)
	transactor, err := luatx.New(client, luatx.Config{Namespace: name, Keyspace: keyspace})
	redistest.Must(t, err)
	return &service{
		t: t, mode: m, client: client, keyspace: keyspace, transactor: transactor, name: name,
		cfg: stack.Config{
			Destination: func(msg *message.Message) (string, error) { return "about-" + msg.Subject(), nil },
			MarkKey:     func(id message.Identity) string { return name + ":inbox:" + id.Source + ":" + id.ID },
			OutboxStreamFor: func(input *message.Message) (string, error) {
				tag, err := keyspace.Tag(input.Subject())
				return keyspace.TagKey(tag, "outbox"), err
			},
			Logger: slog.New(slog.DiscardHandler),
		},
	}
}

// streams returns the stream of each partition: its inputs, or its outbox.
func (s *service) streams(name string) []string {
	var keys []string
	for _, tag := range s.keyspace.Tags() {
		keys = append(keys, s.keyspace.TagKey(tag, name))
	}
	return keys
}

// subscriberConfig stops and retries quickly, and claims entries of other consumers late.
func (s *service) subscriberConfig(key string) stream.SubscriberConfig {
	return stream.SubscriberConfig{
		Stream: key, Group: "billing", BatchSize: 50, BlockTimeout: 20 * time.Millisecond, MaxIdleTime: time.Hour,
		NackBackoff: message.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond},
		Logger:      slog.New(slog.DiscardHandler),
	}
}

// workers is the number of messages that a process handles at the same time.
const workers = 4

// start runs the service on its input streams until stop, or the end of the test.
func (s *service) start(handler message.Handler, change ...func(*stream.SubscriberConfig)) (stop func()) {
	s.t.Helper()
	mw, err := s.mode.wire(s)
	redistest.Must(s.t, err)
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{Concurrency: workers, Logger: slog.New(slog.DiscardHandler)}})
	redistest.Must(s.t, engine.Router().Use(mw))
	redistest.Must(s.t, engine.AddHandler("charge", nil, handler))
	ctx, cancel := context.WithCancel(context.Background())
	var inputs []<-chan *message.RawMessage
	for _, key := range s.streams("orders") {
		cfg := s.subscriberConfig(key)
		for _, c := range change {
			c(&cfg)
		}
		sub, err := stream.NewSubscriber(s.client, cfg)
		redistest.Must(s.t, err)
		ch, err := sub.Subscribe(ctx)
		redistest.Must(s.t, err)
		redistest.Must(s.t, engine.AddRawInput(key, nil, ch))
		s.subs = append(s.subs, sub)
		inputs = append(inputs, ch)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := engine.Run(ctx); err != nil {
			s.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		for _, ch := range inputs {
			for msg := range ch {
				msg.Release()
			}
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// feed adds the charges to the input streams, each as a message with the id of its order.
func (s *service) feed(charges []charge) {
	s.t.Helper()
	publisher, err := stream.NewPublisher(s.client, stream.PublisherConfig{StreamFor: func(msg *message.RawMessage) (string, error) {
		tag, err := s.keyspace.Tag(msg.Subject())
		return s.keyspace.TagKey(tag, "orders"), err
	}})
	redistest.Must(s.t, err)
	var msgs []*message.RawMessage
	for _, c := range charges {
		data, err := json.Marshal(c)
		redistest.Must(s.t, err)
		msgs = append(msgs, message.NewRaw(data, message.Attributes{
			"id": c.Order, "source": "/shop", "type": "charge", "subject": c.Customer, "datacontenttype": "application/json",
		}, nil))
	}
	for _, err := range publisher.Send(s.t.Context(), msgs...) {
		redistest.Must(s.t, err)
	}
}

// settled waits until as many messages as were fed have been delivered, and nothing is pending.
func (s *service) settled(fed int) {
	s.t.Helper()
	for fresh := int64(0); fresh < int64(fed); {
		before := fresh
		redistest.Eventually(s.t, fmt.Sprintf("%s to receive more than %d of %d messages", s.mode.name, before, fed), func() bool {
			fresh = 0
			for _, sub := range s.subs {
				stats := sub.Stats()
				fresh += stats.Delivered - stats.Redelivered
			}
			return fresh > before
		})
	}
	redistest.Eventually(s.t, "every message of "+s.mode.name+" to be acked", func() bool { return s.pending() == 0 })
}

func (s *service) pending() int64 {
	s.t.Helper()
	sum := int64(0)
	for _, key := range s.streams("orders") {
		pending, err := s.client.XPending(s.t.Context(), key, "billing").Result()
		redistest.Must(s.t, err)
		sum += pending.Count
	}
	return sum
}

// account is the stored state of a customer.
type account struct {
	Spent, Charges string
	Orders         []string
	Journal        []string
}

func (s *service) account(customer string) account {
	s.t.Helper()
	ctx, repo := s.t.Context(), redisAccounts{s.client, s.keyspace}
	sums, orders, journal, err := repo.keys(customer)
	redistest.Must(s.t, err)
	fields, err := s.client.HGetAll(ctx, sums).Result()
	redistest.Must(s.t, err)
	a := account{Spent: fields["spent"], Charges: fields["charges"]}
	a.Orders, err = s.client.SMembers(ctx, orders).Result()
	redistest.Must(s.t, err)
	a.Journal, err = s.client.LRange(ctx, journal, 0, -1).Result()
	redistest.Must(s.t, err)
	slices.Sort(a.Orders)
	slices.Sort(a.Journal) // several workers write it in any order
	return a
}

// wantAccounts checks that each charge was applied the given number of times.
func (s *service) wantAccounts(charges []charge, times int) {
	s.t.Helper()
	spent, orders := make(map[string]int), make(map[string][]string)
	for _, c := range charges {
		spent[c.Customer] += times * c.Pence
		orders[c.Customer] = append(orders[c.Customer], c.Order)
	}
	for customer, list := range orders {
		slices.Sort(list)
		got := s.account(customer)
		want := fmt.Sprint(spent[customer], times*len(list), list, list)
		if text := fmt.Sprint(got.Spent, " ", got.Charges, " ", got.Orders, " ", got.Journal); text != want {
			s.t.Errorf("%s, %s:\n%s, want\n%s", s.mode.name, customer, text, want)
		}
	}
}
