package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/repair"
	"github.com/luatx/luatx/service"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

// site is a server or a cluster with a user of docs/acl.md.
type site struct {
	user   string
	admins []*redis.Client // of every node
	root   redis.UniversalClient
	client func(t testing.TB) redis.UniversalClient // logged in as the user
}

func single(t testing.TB, user string) site {
	t.Helper()
	server := redistest.Single(t, redistest.Own())
	return site{user, []*redis.Client{server.Admin(t)}, server.Admin(t), func(t testing.TB) redis.UniversalClient {
		t.Helper()
		return server.Client(t, func(o *redis.Options) { o.Username, o.Password = user, "secret" })
	}}
}

// eachSite runs a test on a server and on a cluster of its own.
func eachSite(t *testing.T, user string, test func(t *testing.T, s site)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, single(t, user))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.Cluster(t)
		s := site{user: user, root: redistest.AsAdmin(t, cluster.Client(t)), client: func(t testing.TB) redis.UniversalClient {
			t.Helper()
			return cluster.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = user, "secret" })
		}}
		for _, addr := range cluster.Addrs() {
			s.admins = append(s.admins, redistest.Admin(t, addr))
		}
		test(t, s)
	})
}

// grant sends lines of docs/acl.md that concern the user to every node.
func (s site) grant(t testing.TB, lines [][]string) {
	t.Helper()
	bin, err := redistest.Find()
	redistest.Must(t, err)
	if rules := connecting(bin); rules != nil {
		lines = append(slices.Clone(lines), append([]string{"ACL", "SETUSER", s.user}, rules...))
	}
	for _, node := range s.admins {
		for _, words := range lines {
			if words[2] == s.user {
				redistest.Must(t, node.Do(t.Context(), rig.Anys(words)...).Err())
			}
		}
		redistest.Must(t, node.Do(t.Context(), "ACL", "LOG", "RESET").Err())
	}
}

// wantNoDenial checks that no node has denied anything.
func (s site) wantNoDenial(t testing.TB) {
	t.Helper()
	for _, node := range s.admins {
		log, err := node.ACLLog(t.Context(), 100).Result()
		redistest.Must(t, err)
		for _, entry := range log {
			t.Errorf("%s was denied %s %q", entry.Username, entry.Reason, entry.Object)
		}
	}
}

func wantNoLine(t testing.TB, log *rig.Lines) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "a cluster has wake-ups from 7.0 on") {
			t.Errorf("logged %s", line)
		}
	}
}

func wantNoPermissionError(t testing.TB, log *rig.Lines) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		if lower := strings.ToLower(line); strings.Contains(lower, "noperm") || strings.Contains(lower, "permission") || strings.Contains(lower, "can't run") {
			t.Errorf("logged %s", line)
		}
	}
}

// Order is the command of the services below, and Ordered their event.
type (
	Order   struct{ Customer, Product string }
	Ordered struct{ Product string }
)

// large exceeds the size from which a body is stored in a key of its own.
var large = strings.Repeat("x", 16<<10)

// newOrders returns the Transactor of the program in README.md. It writes the history at short intervals.
func newOrders(t testing.TB, client redis.UniversalClient, log *rig.Lines) *luatx.Transactor {
	t.Helper()
	tr, err := luatx.New(client, luatx.Config{Namespace: "orders", Keyspace: luatx.Partitions(16), Logger: log.Logger()})
	redistest.Must(t, err)
	link.Of(tr).History.Interval = 20 * time.Millisecond
	return tr
}

// runOrders runs the service of the program in README.md, with timers, ordered events, dead letters and short intervals.
func runOrders(t testing.TB, client redis.UniversalClient, log *rig.Lines, partitions int) (stop func()) {
	t.Helper()
	tr := newOrders(t, client, log)
	timers, err := expiry.New(tr, expiry.Config{})
	redistest.Must(t, err)
	input := stream.SubscriberConfig{MaxDeliveries: 3, BlockTimeout: 20 * time.Millisecond, NackBackoff: message.Backoff{Base: time.Millisecond}}
	if partitions == 0 {
		input.ClaimInterval, input.MaxIdleTime = 50*time.Millisecond, 500*time.Millisecond
	}
	s, err := service.New(client, service.Config{
		Stream: "orders", Partitions: partitions, Events: "order-events", Logger: log.Logger(),
		Subscriber: stream.PartitionedConfig{SubscriberConfig: input},
		Stack:      stack.Config{OrderingKey: func(*message.Message) (string, error) { return "all", nil }},
		Relay:      relay.Config{SweepInterval: 20 * time.Millisecond},
		Repair:     repair.Config{Interval: 20 * time.Millisecond},
		Timers: expiry.WorkerConfig{SweepInterval: 20 * time.Millisecond, Event: func(_ context.Context, timer expiry.Timer) (*message.Message, error) {
			return message.New(nil, message.Attributes{"type": "late", "source": "/orders", "subject": timer.Subject}, nil), nil
		}},
		Given: service.Given{Transactor: tr, Timers: timers},
	}, service.Command("order", func(ctx context.Context, cmd Order) ([]Ordered, error) {
		tx, _ := luatx.TxFromContext(ctx)
		key, err := tx.Key("bought")
		if err != nil {
			return nil, err
		}
		bought := tx.Pipeline().HIncrBy(ctx, key, "n", 1)
		if cmd.Product == "" { // the transaction fails, and is undone
			return nil, errors.Join(luatx.Queued(bought), luatx.Queued(tx.Pipeline().LPush(ctx, key, "v")))
		}
		return []Ordered{{cmd.Product}}, errors.Join(luatx.Queued(bought), timers.RecordIn(tx, cmd.Customer, time.Now()))
	}))
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		assert.NoError(t, <-done, "Run")
	}
}

// inputs returns the keys of the streams that a service of so many partitions reads.
func inputs(partitions int) []string {
	if partitions == 0 {
		return []string{"orders"}
	}
	return stream.PartitionKeys(luatx.Partitions(partitions), "orders")
}

// orderer sends commands to the service. A service of no partitions reads one stream.
func orderer(t testing.TB, root redis.UniversalClient, partitions int) (order func(product string)) {
	t.Helper()
	publisher, err := stream.NewPublisher(root, stream.PublisherConfig{Stream: "orders"})
	if partitions > 0 {
		publisher, err = stream.NewPartitionedPublisher(root, luatx.Partitions(partitions), stream.PublisherConfig{Stream: "orders"})
	}
	redistest.Must(t, err)
	return func(product string) {
		t.Helper()
		customer := message.NewID()
		body := fmt.Appendf(nil, `{"Customer":%q,"Product":%q}`, customer, product)
		redistest.Must(t, publisher.Send(t.Context(), message.NewRaw(body, message.Attributes{
			"id": message.NewID(), "source": "/shop", "type": "order", "subject": customer,
		}, nil))...)
	}
}

// abandon delivers the entries of streams to a consumer that does not exist any more.
func abandon(t testing.TB, root redis.UniversalClient, streams []string) {
	t.Helper()
	for _, key := range streams {
		redistest.Must(t, root.XGroupCreateMkStream(t.Context(), key, "orders", "0").Err())
		err := root.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "orders", Consumer: "dead", Streams: []string{key, ">"}, Block: -1}).Err()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
}

// measured reports whether the relays have written outcomes and a measurement of the outbox to the history.
func measured(t testing.TB, tr *luatx.Transactor) bool {
	t.Helper()
	h, step := link.Of(tr).History, history.Coarse()
	now, err := h.Now(t.Context())
	redistest.Must(t, err)
	all, err := h.Read(t.Context(), step, now.Add(-step.Step), now)
	redistest.Must(t, err)
	return len(all) > 0 && len(all[len(all)-1].Destinations) > 0 && all[len(all)-1].Gauges != nil
}

// registered counts the processes of each kind.
func registered(t testing.TB, root redis.UniversalClient, namespace string) map[string]int {
	t.Helper()
	kinds := map[string]int{}
	for e, err := range process.New(root, namespace, slog.New(slog.DiscardHandler)).All(t.Context()) {
		redistest.Must(t, err)
		kinds[e.Kind]++
	}
	return kinds
}

func TestServiceRunsWithItsDocumentedRights(t *testing.T) {
	t.Parallel()
	bin, err := redistest.Find()
	redistest.Must(t, err)
	lines, err := bin.ACLLines()
	redistest.Must(t, err)
	lines = append(lines, []string{"ACL", "SETUSER", "service", "+lpush"}) // the command of a handler
	eachSite(t, "service", func(t *testing.T, s site) {
		s.grant(t, lines)
		ordersAreServed(t, s, 16)
	})
	t.Run("one stream", func(t *testing.T) {
		t.Parallel()
		s := single(t, "service")
		s.grant(t, append(slices.Clone(lines), []string{"ACL", "SETUSER", "service", "~orders"}))
		ordersAreServed(t, s, 0)
	})
	t.Run("line of the doctor", func(t *testing.T) {
		t.Parallel()
		s := single(t, "service")
		operator, err := admin.NewOperator(newOrders(t, s.root, &rig.Lines{}), admin.OperatorConfig{Client: s.root, Name: "alice"})
		redistest.Must(t, err)
		line, err := operator.ACL(t.Context(), admin.RoleService)
		redistest.Must(t, err)
		words := strings.Fields(strings.Replace(line, ">PASSWORD", ">secret", 1))
		s.grant(t, [][]string{words, {"ACL", "SETUSER", "service", "~{*}:*", "~order-events", "+lpush"}})
		ordersAreServed(t, s, 16)
	})
}

// ordersAreServed runs two processes of a service until they have used each of their parts, and checks that the servers have
// denied nothing.
func ordersAreServed(t *testing.T, s site, partitions int) {
	t.Helper()
	ctx, log, order := redistest.Soon(t), &rig.Lines{}, orderer(t, s.root, partitions)
	tr := newOrders(t, s.root, log)
	const orders = 40
	someOrders := func() {
		for range orders / 4 {
			order("tea")
			order(large)
		}
	}
	someOrders()
	abandon(t, s.root, inputs(partitions))
	stopFirst, stopSecond := runOrders(t, s.client(t), log, partitions), runOrders(t, s.client(t), log, partitions)
	someOrders()
	redistest.Eventually(t, "the events of every order and timer to be published", func() bool {
		return s.root.XLen(ctx, "order-events").Val() == 2*orders
	})
	redistest.Eventually(t, "both processes to register", func() bool {
		found := registered(t, s.root, "orders")
		return found[process.Consumer] == 2 && found[process.Relay] == 2 && found[process.Repair] == 2
	})
	redistest.Eventually(t, "the relays to write the history", func() bool { return measured(t, tr) })
	stopFirst()
	wantNoLine(t, log)

	order("")
	redistest.Eventually(t, "the order without a product to become a dead letter", func() bool {
		var dead int64
		for _, key := range inputs(partitions) {
			dead += s.root.XLen(ctx, stream.DeadLetterKey(key)).Val()
		}
		return dead == 1
	})
	pending := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[3]).Key("pending")
	redistest.Must(t, s.root.ZAdd(ctx, pending, redis.Z{Score: 9e15, Member: "ghost"}).Err())
	redistest.Eventually(t, "the event without a body to be removed", func() bool { return s.root.Exists(ctx, pending).Val() == 0 })
	stopSecond()
	s.wantNoDenial(t)
	wantNoPermissionError(t, log)
}

func TestApplicationThatRunsARelayNeedsOnlyItsDocumentedRights(t *testing.T) {
	t.Parallel()
	bin, err := redistest.Find()
	redistest.Must(t, err)
	lines, err := bin.ACLLines("The application", "An application that runs a relay", "Every user: CLIENT SETINFO")
	redistest.Must(t, err)
	eachSite(t, "app", func(t *testing.T, s site) {
		s.grant(t, lines)
		ctx, log := redistest.Soon(t), &rig.Lines{}
		newShop := func() *luatx.Transactor {
			tr, err := luatx.New(s.client(t), luatx.Config{Namespace: "shop", Keyspace: luatx.Partitions(16).WithPrefix("order"), Logger: log.Logger()})
			redistest.Must(t, err)
			link.Of(tr).History.Interval = 20 * time.Millisecond
			return tr
		}
		attached, alone := newShop(), newShop()
		redistest.Must(t, s.root.Set(ctx, "events:wrong", "no stream", 0).Err())
		events, err := stream.NewPublisher(link.Of(attached).Runner.Client(), stream.PublisherConfig{
			StreamFor: func(event *message.RawMessage) (string, error) { return event.Destination(), nil }, Logger: log.Logger(),
		})
		redistest.Must(t, err)
		stop := runRelay(t, attached, relay.Streams(events), relay.Config{Attempts: 2, BackoffBase: time.Millisecond, Logger: log.Logger()})

		n := 0
		emit := func(tr *luatx.Transactor, destination, product, key string) {
			n++
			_, err := tr.Transact(ctx, fmt.Sprint("customer-", n), func(tx *luatx.Tx) error {
				return tx.Emit(luatx.Event{ID: fmt.Sprint(n), Data: Ordered{product}, Key: key, Attributes: message.Attributes{"source": "/shop", "destination": destination}})
			})
			redistest.Must(t, err)
		}
		for _, tr := range []*luatx.Transactor{attached, alone} {
			for _, product := range []string{"tea", large} {
				emit(tr, "events:sold", product, "")
				emit(tr, "events:sold", product, "all")
			}
		}
		redistest.Eventually(t, "every event to be published", func() bool { return s.root.XLen(ctx, "events:sold").Val() == int64(n) })
		redistest.Eventually(t, "the relay to register", func() bool { return registered(t, s.root, "shop")[process.Relay] == 1 })
		redistest.Eventually(t, "the relay to write the history", func() bool { return measured(t, alone) })
		wantNoLine(t, log)

		emit(alone, "events:wrong", large, "all")
		redistest.Eventually(t, "the event to be parked", func() bool {
			counts, err := outbox.NewStore(alone).Counts(ctx)
			redistest.Must(t, err)
			return counts.Parked == 1
		})
		stop()
		s.wantNoDenial(t)
		wantNoPermissionError(t, log)
	})
}

func TestSettingsOfAServiceNeedOnlyTheirDocumentedRights(t *testing.T) {
	t.Parallel()
	bin, err := redistest.Find()
	redistest.Must(t, err)
	lines, err := bin.ACLLines()
	redistest.Must(t, err)
	trim := stream.SubscriberConfig{TrimAcked: true}
	for name, c := range map[string]struct {
		cfg    service.Config
		prefix string // of the keyspace
		rules  string
	}{
		"pipelined":            {service.Config{Mode: service.Pipelined}, "", "~orders +del ~orders-outbox"},
		"pipelined partitions": {service.Config{Mode: service.Pipelined, Partitions: 4}, "", "+del"},
		"prefix":               {service.Config{Partitions: 4}, "shop", "resetkeys ~orders:* ~order-events ~shop:*"},
		"trim":                 {service.Config{Subscriber: stream.PartitionedConfig{SubscriberConfig: trim}}, "", "~orders +xtrim +xinfo|groups"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := single(t, "service")
			s.grant(t, append(slices.Clone(lines), append([]string{"ACL", "SETUSER", "service"}, strings.Fields(c.rules)...)))
			log, cfg := &rig.Lines{}, c.cfg
			cfg.Namespace, cfg.Stream, cfg.Events, cfg.Logger = "orders", "orders", "order-events", log.Logger()
			cfg.Transactor.Keyspace = luatx.Partitions(4).WithPrefix(c.prefix)
			cfg.Subscriber.MaxDeliveries, cfg.Subscriber.BlockTimeout = 3, 20*time.Millisecond
			cfg.Subscriber.NackBackoff = message.Backoff{Base: time.Millisecond}
			if cfg.Partitions == 0 {
				cfg.Subscriber.ClaimInterval = 50 * time.Millisecond
			}
			settingIsServed(t, s, cfg, log)
		})
	}
}

// settingIsServed runs a service until it has published two events and given up a message, and checks that the server has denied
// nothing.
func settingIsServed(t *testing.T, s site, cfg service.Config, log *rig.Lines) {
	t.Helper()
	ctx, client, keyspace := redistest.Soon(t), s.client(t), cfg.Transactor.Keyspace
	tag, err := keyspace.Tag("ada")
	redistest.Must(t, err)
	input, bought := cfg.Stream, keyspace.TagKey(tag, "bought")
	if cfg.Partitions > 0 {
		input = keyspace.TagKey(tag, cfg.Stream)
	}
	publisher, err := stream.NewPublisher(s.root, stream.PublisherConfig{Stream: input})
	redistest.Must(t, err)
	send := func(id, product string) {
		redistest.Must(t, publisher.Send(ctx, message.NewRaw(fmt.Appendf(nil, `{"Product":%q}`, product), message.Attributes{
			"id": id, "source": "/shop", "type": "order", "subject": "ada",
		}, nil))...)
	}
	running, err := service.New(client, cfg, service.Command("order", func(ctx context.Context, cmd Order) ([]Ordered, error) {
		if cmd.Product == "" {
			return nil, errors.New("no product")
		}
		return []Ordered{{cmd.Product}}, luatx.Queued(luatx.CmdableFromContext(ctx, client).HIncrBy(ctx, bought, "n", 1))
	}))
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- running.Run(ctx) }()
	send("1", "tea")
	send("2", large)
	redistest.Eventually(t, "both events to be published", func() bool { return s.root.XLen(ctx, cfg.Events).Val() == 2 })
	if cfg.Subscriber.TrimAcked {
		redistest.Eventually(t, "the stream to be trimmed", func() bool { return s.root.XLen(ctx, input).Val() == 0 })
	}
	wantNoLine(t, log)
	send("3", "")
	redistest.Eventually(t, "the message without a product to become a dead letter", func() bool {
		return s.root.XLen(ctx, stream.DeadLetterKey(input)).Val() == 1
	})
	cancel()
	assert.NoError(t, <-done, "Run")
	s.wantNoDenial(t)
	wantNoPermissionError(t, log)
}
