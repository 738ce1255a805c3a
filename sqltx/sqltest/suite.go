package sqltest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
)

// Conformance tests that sqltx keeps its guarantees on a database. It creates tables and drops them.
func Conformance(t *testing.T, d Database) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *suite){
		"Init":           testInit,
		"Names":          testNames,
		"Tx":             testTx,
		"Savepoints":     testSavepoints,
		"EndedSavepoint": testSavepointOfAnEndedContext,
		"Deadlock":       testDeadlock,
		"Inbox":          testInbox,
		"InboxRace":      testInboxRace,
		"Outbox":         testOutbox,
		"EventIDs":       testEventIDs,
		"Fidelity":       testFidelity,
		"Publish":        testPublish,
		"Failures":       testFailures,
		"LateCommit":     testLateCommit,
		"Leases":         testLeases,
		"StaleOwner":     testStaleOwner,
		"LeaseEnd":       testLeaseEnd,
		"LeaseInDrain":   testLeaseInDrain,
		"Shutdown":       testShutdown,
		"SideBySide":     testSideBySide,
		"Order":          testOrder,
		"OneOwner":       testOneOwner,
		"Parked":         testParked,
		"Cleanup":        testCleanup,
		"Wiring":         testWiring,
		"Marshaler":      testMarshaler,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSuite(t, d))
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience is the time limit for what a test waits for.
const patience = 30 * time.Second

// suite holds the tables of one test.
type suite struct {
	Database
	db                      *sql.DB
	inbox, outbox, business string // tables
}

func newSuite(t *testing.T, d Database) *suite {
	t.Helper()
	s := &suite{Database: d, db: d.Open(t), inbox: Table("inbox"), outbox: Table("outbox"), business: Table("business")}
	ctx := t.Context()
	for _, init := range []func(context.Context) error{s.inboxConfig().Init, s.outboxConfig().Init} {
		must(t, init(ctx))
	}
	s.exec(t, "CREATE TABLE "+s.business+" (id VARCHAR(64) PRIMARY KEY, n INTEGER NOT NULL)")
	t.Cleanup(func() {
		for _, table := range []string{s.inbox, s.outbox, s.business} {
			_, _ = s.db.ExecContext(context.Background(), "DROP TABLE IF EXISTS "+table) // often the database is dropped anyway
		}
	})
	return s
}

func (s *suite) inboxConfig() sqltx.InboxConfig {
	return sqltx.InboxConfig{DB: s.db, Table: s.inbox, Subscriber: "orders", Dialect: s.Dialect}
}

func (s *suite) outboxConfig() sqltx.OutboxConfig {
	return sqltx.OutboxConfig{DB: s.db, Table: s.outbox, Topic: "order-events", Dialect: s.Dialect}
}

// publisher returns a publisher with short intervals.
func (s *suite) publisher(change ...func(*sqltx.OutboxPublisherConfig)) *sqltx.OutboxPublisher {
	cfg := sqltx.OutboxPublisherConfig{
		DB: s.db, Table: s.outbox, Dialect: s.Dialect, PollInterval: 10 * time.Millisecond,
		BackoffBase: time.Millisecond, BackoffCap: 2 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	return sqltx.NewOutboxPublisher(cfg)
}

// tx returns the TxMiddleware of the database.
func (s *suite) tx() message.Middleware {
	return sqltx.TxMiddleware(s.db, &sqltx.TxOptions{Dialect: s.Dialect})
}

func (s *suite) transact(ctx context.Context, fn func(ctx context.Context) error) error {
	return sqltx.Transact(ctx, s.db, &sqltx.TxOptions{Dialect: s.Dialect}, fn)
}

// begin starts a publisher that ends with the test or with stop, which waits until everything is settled.
func begin(t testing.TB, p *sqltx.OutboxPublisher) (source <-chan *message.RawMessage, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	source, err := p.Source(ctx)
	must(t, err)
	stop = sync.OnceFunc(func() {
		cancel()
		p.Wait()
	})
	t.Cleanup(stop)
	return source, stop
}

// source starts a publisher that ends with the test.
func (s *suite) source(t testing.TB, p *sqltx.OutboxPublisher) <-chan *message.RawMessage {
	t.Helper()
	source, _ := begin(t, p)
	return source
}

func (s *suite) exec(t testing.TB, statement string, args ...any) int64 {
	t.Helper()
	result, err := s.db.ExecContext(context.Background(), s.Dialect.Bind(statement), args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	n, err := result.RowsAffected()
	must(t, err)
	return n
}

func (s *suite) count(t testing.TB, query string, args ...any) int {
	t.Helper()
	var n int
	if err := s.db.QueryRowContext(context.Background(), s.Dialect.Bind(query), args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// rows returns the number of rows in a table that meet all conditions.
func (s *suite) rows(t testing.TB, table string, conditions ...string) int {
	t.Helper()
	return s.count(t, "SELECT count(*) FROM "+table+" WHERE "+strings.Join(append(conditions, "1 = 1"), " AND "))
}

// wantRows fails the test unless the given number of rows in a table meet the conditions.
func (s *suite) wantRows(t testing.TB, want int, table string, conditions ...string) {
	t.Helper()
	if n := s.rows(t, table, conditions...); n != want {
		t.Errorf("%d rows of %s are as %q, want %d", n, table, conditions, want)
	}
}

// stack returns a Router with all middlewares around a handler.
func (s *suite) stack(t testing.TB, handle func(ctx context.Context, order string) ([]string, error)) *message.Router {
	t.Helper()
	router := message.NewRouter(message.PipeConfig{})
	err := errors.Join(
		router.Use(s.tx(), sqltx.InboxMiddleware(s.inboxConfig()), sqltx.OutboxMiddleware(s.outboxConfig())),
		router.AddHandler("place-order", nil, orderHandler(handle)),
	)
	must(t, err)
	return router
}

type placeOrder struct{ Order string }

type orderPlaced struct{ Name string }

// orderHandler returns a handler that creates an event for each name that handle returns.
func orderHandler(handle func(ctx context.Context, order string) ([]string, error)) message.Handler {
	return message.NewCommandHandler(func(ctx context.Context, cmd placeOrder) ([]orderPlaced, error) {
		names, err := handle(ctx, cmd.Order)
		var events []orderPlaced
		for _, name := range names {
			events = append(events, orderPlaced{name})
		}
		return events, err
	}, message.CommandHandlerConfig{CommandType: "place.order", Source: "/orders"})
}

// enter simulates an adapter: it writes a row to the business table.
func (s *suite) enter(ctx context.Context, id string) error {
	_, err := sqltx.ExecutorFromContext(ctx, s.db).ExecContext(ctx, s.Dialect.Bind("INSERT INTO "+s.business+" (id, n) VALUES (?, 1)"), id)
	return err
}

func order(id string) (msg *message.Message, outcome *string) {
	outcome = new(string)
	msg = message.New(placeOrder{id}, message.Attributes{message.AttrID: id, message.AttrSource: "/shop", message.AttrType: "place.order"},
		message.NewAcking(func() { *outcome = "acked" }, func(error) { *outcome = "nacked" }))
	return msg, outcome
}

// emit commits events with names and an ordering key.
func (s *suite) emit(t testing.TB, key string, names ...string) {
	t.Helper()
	s.emitTo(t, s.outboxConfig(), key, names...)
}

func (s *suite) emitTo(t testing.TB, outbox sqltx.OutboxConfig, key string, names ...string) {
	t.Helper()
	must(t, s.transact(context.Background(), func(ctx context.Context) error { return sqltx.Emit(ctx, outbox, events(key, names...)...) }))
}

func events(key string, names ...string) []*message.Message {
	var out []*message.Message
	for _, name := range names {
		attrs := message.Attributes{message.AttrID: "event-" + name, message.AttrSource: "/orders", message.AttrType: "order.placed"}
		if key != "" {
			attrs[message.AttrPartitionKey] = key
		}
		out = append(out, message.New(orderPlaced{name}, attrs, nil))
	}
	return out
}

func name(t testing.TB, msg *message.RawMessage) string {
	t.Helper()
	var e orderPlaced
	if err := json.Unmarshal(msg.Data, &e); err != nil {
		t.Error(err)
	}
	return e.Name
}

func receive(t testing.TB, source <-chan *message.RawMessage) *message.RawMessage {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case msg, ok := <-source:
		if !ok {
			t.Fatal("the source has ended")
		}
		return msg
	case <-timer.C:
		t.Fatal("timed out waiting for an event")
	}
	return nil
}

// ack receives events with these names in this order, and acknowledges them.
func ack(t testing.TB, source <-chan *message.RawMessage, names ...string) {
	t.Helper()
	for _, want := range names {
		msg := receive(t, source)
		if got := name(t, msg); got != want {
			t.Errorf("%s was handed out, want %s", got, want)
		}
		msg.Ack()
	}
}

// silent fails the test if an event arrives within d.
func silent(t testing.TB, source <-chan *message.RawMessage, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case msg, ok := <-source:
		if ok {
			t.Fatalf("%s was handed out", name(t, msg))
		}
	case <-timer.C:
	}
}

// eventually waits for a condition, and ends the test if it does not become true.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("timed out waiting for: %s", what)
		case <-ticker.C:
		}
	}
}

// tally counts how often each event was seen.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *tally) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[name]++
}

func (c *tally) total() (names, times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.seen {
		times += n
	}
	return len(c.seen), times
}

func numbered(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s%04d", prefix, i))
	}
	return out
}
