package brokertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// Ledger is a service that appends the number of each message to the list of its account, with an inbox of positions. A message
// that is applied twice, lost or overtaken shows in the list.
type Ledger struct {
	// Namespace is that of the service in Redis.
	Namespace string

	client redis.UniversalClient
	tr     *luatx.Transactor
}

// Accounts is how many accounts a Ledger has.
const Accounts = 100

// refused names the streams of parked messages.
const refused = "refused"

// parkedEach is the number of messages of an account of which one fails for good.
const parkedEach = 50

// isParked reports whether a message fails for good.
func isParked(number int) bool { return number%parkedEach == 7 }

// Account returns the name of an account.
func Account(n int) string { return "account-" + strconv.Itoa(n) }

// NewLedger returns the service of a namespace.
func NewLedger(client redis.UniversalClient, namespace string) (*Ledger, error) {
	tr, err := luatx.New(client, luatx.Config{
		Namespace: namespace, Keyspace: luatx.Partitions(4).WithPrefix(namespace), Logger: slog.New(slog.DiscardHandler),
	})
	return &Ledger{Namespace: namespace, client: client, tr: tr}, err
}

// Transactor returns the Transactor of the service.
func (l *Ledger) Transactor() *luatx.Transactor { return l.tr }

// Entry is the data of a message.
type Entry struct{ Number int }

// NewEntry returns a message of an account.
func NewEntry(account, number int) *message.RawMessage {
	return message.NewRaw(fmt.Appendf(nil, `{"Number":%d}`, number), message.Attributes{
		message.AttrID: fmt.Sprintf("%d/%d", account, number), message.AttrSource: "/test", message.AttrType: "entry", message.AttrSubject: Account(account),
	}, nil)
}

// Hooks are called by an engine of a Ledger. Each may be nil.
type Hooks struct {
	// Before runs in each handler and may fail it.
	Before func(ctx context.Context, account string, number int) error
	// Failed gets the error of each message that was not applied.
	Failed func(error)
}

// Engine returns an engine that applies the messages of subscribers.
func (l *Ledger) Engine(hooks Hooks, subs ...message.Subscriber) (*message.Engine, error) {
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{
		Concurrency: 16, Logger: slog.New(slog.DiscardHandler),
		ErrorHandler: func(_ context.Context, _ *message.Message, err error) {
			if hooks.Failed != nil {
				hooks.Failed(err)
			}
		},
	}})
	handler := message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[Entry]) ([]*message.Message, error) {
		n := msg.Data.Number
		if hooks.Before != nil {
			if err := hooks.Before(ctx, msg.Subject(), n); err != nil {
				return nil, err
			}
		}
		if isParked(n) {
			return nil, message.Permanent(errors.New("permanent failure for the test"))
		}
		key, err := l.listKey(msg.Subject())
		if err != nil {
			return nil, err
		}
		return nil, luatx.Queued(luatx.CmdableFromContext(ctx, l.client).RPush(ctx, key, n))
	}, message.Named(""))
	errs := []error{
		engine.Router().Use(luatx.Middleware(l.tr), inbox.Position(inbox.PositionConfig{DeadLetter: refused})), engine.AddHandler("enter", nil, handler),
	}
	for i, sub := range subs {
		errs = append(errs, engine.AddSubscriber(fmt.Sprint("messages-", i), nil, sub))
	}
	return engine, errors.Join(errs...)
}

// Mishap fails one message in a hundred. It is a hook before handlers.
func Mishap(context.Context, string, int) error {
	if rand.IntN(100) == 0 {
		return errors.New("mishap")
	}
	return nil
}

func (l *Ledger) listKey(account string) (string, error) { return l.tr.Keyspace().Key(account, "list") }

// Applied returns how many messages of the first accounts are applied or parked.
func (l *Ledger) Applied(ctx context.Context, accounts int) (n int, err error) {
	pipe := l.client.Pipeline()
	var lengths []*redis.IntCmd
	for i := range accounts {
		key, err := l.listKey(Account(i))
		if err != nil {
			return 0, err
		}
		lengths = append(lengths, pipe.LLen(ctx, key))
	}
	for _, key := range l.deadKeys() {
		lengths = append(lengths, pipe.XLen(ctx, key))
	}
	_, err = pipe.Exec(ctx)
	for _, length := range lengths {
		n += int(length.Val())
	}
	return n, err
}

// deadKeys returns the streams of parked messages.
func (l *Ledger) deadKeys() (keys []string) {
	for _, n := range l.tr.Keyspace().Slots() {
		keys = append(keys, l.tr.Keyspace().TagKey(slot.Text(n), refused))
	}
	return keys
}

// Await waits until n messages of the first accounts are applied or parked.
func (l *Ledger) Await(t testing.TB, accounts, n int) {
	t.Helper()
	redistest.Eventually(t, fmt.Sprintf("%d messages to be applied", n), func() bool {
		applied, err := l.Applied(t.Context(), accounts)
		redistest.Must(t, err)
		return applied >= n
	})
}

// Want checks that the messages 0 to each-1 of the first accounts are applied once and in order, except for those that fail for good,
// which must be parked once.
func (l *Ledger) Want(t testing.TB, accounts, each int) {
	t.Helper()
	parked := map[string]int{}
	for _, key := range l.deadKeys() {
		letters, err := l.client.XRange(t.Context(), key, "-", "+").Result()
		redistest.Must(t, err)
		for _, letter := range letters {
			parked[fmt.Sprint(letter.Values["ce_subject"], " ", letter.Values["data"])]++
		}
	}
	for i := range accounts {
		var want []string
		for n := range each {
			if !isParked(n) {
				want = append(want, strconv.Itoa(n))
				continue
			}
			name := fmt.Sprintf(`%s {"Number":%d}`, Account(i), n)
			if parked[name] != 1 {
				t.Errorf("message %s has %d dead letters, want 1", name, parked[name])
			}
			delete(parked, name)
		}
		if list := l.List(t, i); fmt.Sprint(list) != fmt.Sprint(want) {
			t.Errorf("account %s has %d of %d entries: %v", Account(i), len(list), len(want), list)
		}
	}
	if len(parked) > 0 {
		t.Errorf("unexpected dead letters: %v", parked)
	}
}

// Positions returns how many positions the service has, and how many bytes of Redis they take.
func (l *Ledger) Positions(t testing.TB) (n, bytes int64) {
	t.Helper()
	for _, number := range l.tr.Keyspace().Slots() {
		key := link.Of(l.tr).Scripts.Shard(number).Key("positions")
		n += l.client.HLen(t.Context(), key).Val()
		bytes += l.client.MemoryUsage(t.Context(), key).Val()
	}
	return n, bytes
}

// List returns the numbers of the messages of an account, as they were applied.
func (l *Ledger) List(t testing.TB, account int) []string {
	t.Helper()
	key, err := l.listKey(Account(account))
	redistest.Must(t, err)
	list, err := l.client.LRange(t.Context(), key, 0, -1).Result()
	redistest.Must(t, err)
	return list
}
