package stream_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// parted is a partitioned stream for one test.
type parted struct {
	client   redis.UniversalClient
	keyspace luatx.Keyspace
	ns       string
	logs     *recorder
	// positions means that members have an inbox of positions.
	positions bool
	// counts means that handlers count in a hash, which a compiled script can do, instead of appending to a list.
	counts bool
}

func newParted(t *testing.T, client redis.UniversalClient, partitions int) *parted {
	t.Helper()
	ns := redistest.Namespace(t)
	return &parted{client: client, keyspace: luatx.Partitions(partitions).WithPrefix(ns), ns: ns, logs: &recorder{}}
}

func (p *parted) config() stream.PartitionedConfig {
	return stream.PartitionedConfig{
		SubscriberConfig: stream.SubscriberConfig{
			Stream: "orders", Group: "shop", BlockTimeout: 50 * time.Millisecond, Logger: p.logs.logger(), BatchSize: 20,
			NackBackoff: message.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond},
		},
		Lease: time.Second,
	}
}

func (p *parted) keys() []string { return stream.PartitionKeys(p.keyspace, "orders") }

// lease returns the key and content of a partition's lease.
func (p *parted) lease(t *testing.T, i int) (key string, fields map[string]string) {
	t.Helper()
	key = p.keyspace.TagKey(p.keyspace.Tags()[i], "orders", "shop", "lease")
	return key, p.client.HGetAll(t.Context(), key).Val()
}

func (p *parted) subscriber(t *testing.T, cfg stream.PartitionedConfig) *stream.PartitionedSubscriber {
	t.Helper()
	sub, err := stream.NewPartitionedSubscriber(p.client, p.keyspace, cfg)
	redistest.Must(t, err)
	return sub
}

// publish writes the messages from..to-1 of each aggregate, ordered by number. The id is aggregate/number.
func (p *parted) publish(t testing.TB, aggregates, from, to int) {
	t.Helper()
	pub, err := stream.NewPartitionedPublisher(p.client, p.keyspace, stream.PublisherConfig{Stream: "orders"})
	redistest.Must(t, err)
	var batch []*message.RawMessage
	for n := from; n < to; n++ {
		for a := range aggregates {
			batch = append(batch, numbered("a"+strconv.Itoa(a), n))
		}
	}
	for i, err := range pub.Send(t.Context(), batch...) {
		if err != nil {
			t.Fatal(i, err)
		}
	}
}

func numbered(aggregate string, n int) *message.RawMessage {
	return message.NewRaw([]byte(strconv.Itoa(n)), message.Attributes{
		message.AttrID: aggregate + "/" + strconv.Itoa(n), message.AttrSource: "/test", message.AttrType: "counted", message.AttrSubject: aggregate,
	}, nil)
}

// joined is a subscribed member whose messages go to handle, which settles them.
type joined struct {
	*stream.PartitionedSubscriber
	stop func()
}

func (p *parted) join(t *testing.T, cfg stream.PartitionedConfig, handle func(*message.RawMessage)) *joined {
	t.Helper()
	sub := p.subscriber(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := sub.Subscribe(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			for msg := range ch {
				handle(msg)
			}
		})
	}
	stop := sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	return &joined{sub, stop}
}

func (p *parted) wantHolding(t *testing.T, want string, members ...*joined) {
	t.Helper()
	holding := func() string {
		var all []string
		for _, m := range members {
			all = append(all, strconv.Itoa(m.Stats().Holding))
		}
		return strings.Join(all, " ")
	}
	// The names of the members decide which of them has one more.
	same := func() bool { return sortedWords(holding()) == want }
	redistest.Eventually(t, "shares "+want, same)
}

// handledBook records the handled messages by aggregate.
type handledBook struct {
	mu   sync.Mutex
	seen map[string][]int
}

func (b *handledBook) note(msg *message.RawMessage) {
	n, _ := strconv.Atoi(string(msg.Data))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = map[string][]int{}
	}
	b.seen[msg.Subject()] = append(b.seen[msg.Subject()], n)
}

// ack records a message and acknowledges it.
func (b *handledBook) ack(msg *message.RawMessage) {
	b.note(msg)
	msg.Ack()
}

func (b *handledBook) count() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, list := range b.seen {
		n += len(list)
	}
	return n
}

// wantInOrder waits until n messages of each aggregate are handled, and checks that each was handled once and in order.
func (b *handledBook) wantInOrder(t *testing.T, aggregates, n int) {
	t.Helper()
	redistest.Eventually(t, fmt.Sprintf("%d messages to be handled", aggregates*n), func() bool { return b.count() >= aggregates*n })
	b.mu.Lock()
	defer b.mu.Unlock()
	for aggregate, list := range b.seen {
		for i, got := range list {
			if got != i || len(list) != n {
				t.Fatalf("aggregate %s: %v, want 0 to %d", aggregate, list, n-1)
			}
		}
	}
}

// applier is a member that consumes. Each handler appends its message's number to a list of the aggregate.
type applier struct {
	*stream.PartitionedSubscriber
	p      *parted
	client redis.UniversalClient
	tr     *luatx.Transactor
	engine *message.Engine
	failed func(error) // called with the errors of handlers
}

// newApplier returns a member with the given client. The function before runs in each handler, and may fail it.
func (p *parted) newApplier(client redis.UniversalClient, cfg stream.PartitionedConfig, before func(ctx context.Context, id string) error) (*applier, error) {
	log := slog.New(slog.DiscardHandler)
	sub, err := stream.NewPartitionedSubscriber(client, p.keyspace, cfg)
	if err != nil {
		return nil, err
	}
	tr, err := luatx.New(client, luatx.Config{Namespace: p.ns, Keyspace: p.keyspace, Logger: log})
	if err != nil {
		return nil, err
	}
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{Logger: log}})
	if err := engine.Router().Use(luatx.Middleware(tr), p.inbox()); err != nil {
		return nil, err
	}
	a := &applier{sub, p, client, tr, engine, func(error) {}}
	err = engine.AddHandler("apply", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
		if err := before(ctx, msg.ID()); err != nil {
			return nil, err
		}
		return nil, a.apply(ctx, msg.Subject(), msg.ID())
	}))
	return a, err
}

func (p *parted) inbox() message.Middleware {
	if p.positions {
		return inbox.Position(inbox.PositionConfig{})
	}
	return inbox.Middleware(inbox.Config{})
}

// apply appends the number to the aggregate's list. It counts a gap if the predecessor's effect is missing.
func (a *applier) apply(ctx context.Context, aggregate, id string) error {
	key, err := a.p.listKey(aggregate)
	if err != nil {
		return err
	}
	if a.p.counts {
		return luatx.Queued(luatx.CmdableFromContext(ctx, a.client).HIncrBy(ctx, key, "applied", 1))
	}
	_, number, _ := strings.Cut(id, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	applied, err := a.client.LLen(ctx, key).Result()
	if err != nil {
		return err
	}
	if applied < int64(n) {
		return a.client.Incr(ctx, a.p.ns+":gaps").Err()
	}
	return luatx.Queued(luatx.CmdableFromContext(ctx, a.client).RPush(ctx, key, n))
}

func (p *parted) listKey(aggregate string) (string, error) {
	return p.keyspace.Key(aggregate, "applied")
}

func (a *applier) run(ctx context.Context) error {
	return a.Consume(ctx, a.tr, stream.ProcessFunc(func(ctx context.Context, raw *message.RawMessage) error {
		_, err := a.engine.Process(ctx, raw)
		if err != nil {
			a.failed(err)
		}
		return err
	}))
}

// consume runs a member until the test ends or stop is called.
func (p *parted) consume(t *testing.T, client redis.UniversalClient, cfg stream.PartitionedConfig, before func(context.Context, string) error) *joined {
	t.Helper()
	a, err := p.newApplier(client, cfg, before)
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return &joined{a.PartitionedSubscriber, stop}
}

func nothing(context.Context, string) error { return nil }

// wrong returns the aggregates whose list is not 0 to n-1 when everything is acknowledged.
func (p *parted) wrong(ctx context.Context, aggregates, n int) (bad []string) {
	for a := range aggregates {
		key, _ := p.listKey("a" + strconv.Itoa(a))
		list := p.client.LRange(ctx, key, 0, -1).Val()
		ok := len(list) == n
		for i, v := range list {
			ok = ok && v == strconv.Itoa(i)
		}
		if !ok {
			bad = append(bad, fmt.Sprintf("a%d: %d of %d: %v", a, len(list), n, list))
		}
	}
	return bad
}

// open returns the number of entries that are not acknowledged or not read.
func (p *parted) open(ctx context.Context) (n int64) {
	for _, key := range p.keys() {
		groups, err := p.client.XInfoGroups(ctx, key).Result()
		if err != nil || len(groups) == 0 {
			return -1
		}
		n += groups[0].Pending
		// Redis 6.0 has no ranges that exclude their first id.
		for _, x := range p.client.XRangeN(ctx, key, groups[0].LastDeliveredID, "+", 2).Val() {
			if x.ID != groups[0].LastDeliveredID {
				n++
			}
		}
	}
	return n
}

func (p *parted) wantApplied(t *testing.T, aggregates, n int) {
	t.Helper()
	redistest.Eventually(t, "all to be acknowledged", func() bool { return p.open(t.Context()) == 0 })
	for _, bad := range p.wrong(t.Context(), aggregates, n) {
		t.Error(bad)
	}
	if gaps := p.client.Get(t.Context(), p.ns+":gaps").Val(); gaps != "" {
		t.Errorf("%s handlers ran before the effect of the message before theirs", gaps)
	}
}

const envMember = "LUATX_STREAM_TEST_MEMBER"

// memberMain is a member in a process of its own. The environment holds the namespace, the number of partitions, the lease,
// whether the inbox has positions, and the servers. The member ends with its parent.
func memberMain() error {
	args := strings.Fields(os.Getenv(envMember))
	partitions, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	lease, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: args[4:]})
	defer func() { _ = client.Close() }()
	p := &parted{client: client, ns: args[0], keyspace: luatx.Partitions(partitions).WithPrefix(args[0]), positions: args[3] == "true"}
	cfg := p.config()
	cfg.Logger, cfg.Lease, cfg.BatchSize = slog.New(slog.DiscardHandler), lease, 20
	a, err := p.newApplier(client, cfg, nothing)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
		cancel()
	}()
	return a.run(ctx)
}
