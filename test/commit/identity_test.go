package commit_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// crowded is a keyspace whose aggregates share few slots.
func crowded(c *luatx.Config) { c.Keyspace = luatx.Partitions(16).WithPrefix(c.Namespace) }

// forEach calls do for the numbers below n, several at a time.
func forEach(n int, do func(int)) {
	const workers = 32
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				do(i)
			}
		})
	}
	wg.Wait()
}

// ways lists the ways to give a transaction an id.
var ways = map[string]func(ctx context.Context, tr *luatx.Transactor, aggregate string, fn func(*luatx.Tx) error) (luatx.Result, error){
	"WithID": func(ctx context.Context, tr *luatx.Transactor, aggregate string, fn func(*luatx.Tx) error) (luatx.Result, error) {
		return tr.Transact(ctx, aggregate, fn, luatx.WithID("payment-1"))
	},
	"KeepReplies": func(ctx context.Context, tr *luatx.Transactor, aggregate string, fn func(*luatx.Tx) error) (luatx.Result, error) {
		return tr.Transact(ctx, aggregate, fn, luatx.WithID("payment-2"), luatx.KeepReplies())
	},
	"Claim": func(ctx context.Context, tr *luatx.Transactor, aggregate string, fn func(*luatx.Tx) error) (luatx.Result, error) {
		return tr.Transact(ctx, aggregate, func(tx *luatx.Tx) error {
			if err := tx.Claim(luatx.MessageID{Scope: "s", Source: "/shop", ID: "payment-3"}); err != nil {
				return err
			}
			return fn(tx)
		})
	},
}

func TestOneIDCommitsOnceForEachAggregate(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, transact := range ways {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				const aggregates = 1000
				ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, crowded)
				for round, want := range []luatx.Outcome{luatx.Committed, luatx.Duplicate} {
					forEach(aggregates, func(i int) {
						account := fmt.Sprint("account-", i)
						result, err := transact(ctx, tr, account, func(tx *luatx.Tx) error {
							return luatx.Queued(tx.Pipeline().IncrBy(ctx, rig.Key(t, tr, account, "balance"), int64(i)))
						})
						if err != nil || result.Outcome != want {
							t.Errorf("round %d, %s: %v, %v; want %v", round, account, result.Outcome, err, want)
						}
					})
				}
				for i := range aggregates {
					assert.Equal(t, client.Get(ctx, rig.Key(t, tr, fmt.Sprint("account-", i), "balance")).Val(), strconv.Itoa(i), "account %d", i)
				}
			})
		}
	})
}

func TestOneIDInABatchCommitsOnceForEachAggregate(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, crowded)
		counts := map[luatx.Outcome]int{}
		var items []luatx.BatchItem
		for i := range 600 {
			account := fmt.Sprint("account-", i%300)
			items = append(items, luatx.BatchItem{Aggregate: account, Options: []luatx.Option{luatx.WithID("bonus")}, Func: func(tx *luatx.Tx) error {
				return luatx.Queued(tx.Pipeline().Incr(ctx, rig.Key(t, tr, account, "bonus")))
			}})
		}
		for _, result := range tr.TransactBatch(ctx, items) {
			redistest.Must(t, result.Err)
			counts[result.Outcome]++
		}
		if counts[luatx.Committed] != 300 || counts[luatx.Duplicate] != 300 {
			t.Errorf("%v, want 300 committed and 300 duplicates", counts)
		}
	})
}

func TestMessagesThatDifferInScopeSourceOrIDAreDifferentMessages(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		messages := []luatx.MessageID{
			{Scope: "s", Source: "/shop", ID: "1"}, {Scope: "t", Source: "/shop", ID: "1"}, {Scope: "s", Source: "/bank", ID: "1"}, {Scope: "s", Source: "/shop", ID: "2"},
		}
		events := map[string]luatx.MessageID{}
		for _, want := range []luatx.Outcome{luatx.Committed, luatx.Duplicate} {
			for _, msg := range messages {
				result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
					if err := tx.Claim(msg); err != nil {
						return err
					}
					events[tx.EventID()] = msg
					return luatx.Queued(tx.Pipeline().Incr(ctx, rig.Key(t, tr, "a", "count")))
				})
				redistest.Must(t, err)
				assert.Equal(t, result.Outcome, want, "%+v", msg)
			}
		}
		assert.Equal(t, client.Get(ctx, rig.Key(t, tr, "a", "count")).Val(), "4", "commits")
		assert.Equal(t, len(events), len(messages), "ids that events were given in %v", events)
	})
}

func TestOneMessageIDIsAppliedOnceForEachAggregate(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		const aggregates = 200
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, crowded)
		r := message.NewRouter(message.PipeConfig{})
		err := r.Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{}), inbox.Precheck(), outbox.Middleware(outbox.Config{}))
		redistest.Must(t, err)
		err = r.AddHandler("pay", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
			paid := message.New(msg.Subject(), message.Attributes{"type": "paid", "source": "/bank"}, nil)
			return []*message.Message{paid}, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, rig.Key(t, tr, msg.Subject(), "payments")))
		}))
		redistest.Must(t, err)
		forEach(2*aggregates, func(i int) {
			attrs := message.Attributes{"id": "payment-1", "source": "/shop", "type": "pay", "subject": fmt.Sprint("account-", i%aggregates)}
			rig.NoError(t, assert.ErrOf(r.Process(ctx, message.New(nil, attrs, message.NewAcking(nil, nil)))))
		})
		for i := range aggregates {
			assert.Equal(t, client.Get(ctx, rig.Key(t, tr, fmt.Sprint("account-", i), "payments")).Val(), "1", "payments of account %d", i)
		}
		ids := map[string]bool{}
		for event, err := range outbox.NewStore(tr).List(ctx, outbox.Pending, outbox.ListOptions{}) {
			redistest.Must(t, err)
			ids[event.ID] = true
		}
		assert.Equal(t, len(ids), aggregates, "events")
	})
}

func TestDerivedEventIDsDifferBetweenAggregates(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr := rig.NewTransactor(t, client, crowded, func(c *luatx.Config) {
			c.Procedures = []luatx.Procedure{{Name: "note", Keys: []string{"k"}, Source: `return emit{type = 'noted', source = '/bank'}`}}
		})
		derive := func(aggregate string) []string {
			var ids []string
			var noted *redis.Cmd
			_, err := tr.Transact(ctx, aggregate, func(tx *luatx.Tx) error {
				ids = nil
				for range 2 {
					ids = append(ids, tx.EventID())
					if err := tx.Emit(luatx.Event{Body: []byte(`{}`)}); err != nil {
						return err
					}
				}
				noted = tx.Call("note", []string{rig.Key(t, tr, aggregate, "k")})
				return nil
			}, luatx.WithID("1"), luatx.KeepReplies())
			redistest.Must(t, err)
			return append(ids, fmt.Sprint(noted.Val()))
		}
		owner := map[string]string{}
		for i := range 50 {
			account := fmt.Sprint("account-", i)
			first, again := derive(account), derive(account)
			assert.Equal(t, fmt.Sprint(first), fmt.Sprint(again), "the second call for %s", account)
			for _, id := range first {
				if other, taken := owner[id]; taken {
					t.Fatalf("%s and %s share the event id %s", other, account, id)
				}
				owner[id] = account
			}
		}
	})
}

// TestTransferAcrossSlotsLosesNoDeposit follows docs/recipes.md, "Money to an account of another slot". The id of the
// transfer is the id of the withdrawal and of the deposit.
func TestTransferAcrossSlotsLosesNoDeposit(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		const transfers = 500
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, crowded)
		move := func(account, id string, amount int64) (luatx.Outcome, error) {
			result, err := tr.Transact(ctx, account, func(tx *luatx.Tx) error {
				return luatx.Queued(tx.Pipeline().IncrBy(ctx, rig.Key(t, tr, account, "balance"), amount))
			}, luatx.WithID(id))
			return result.Outcome, err
		}
		var from, to [transfers]string
		for i := range transfers {
			from[i], to[i] = rand.Text(), rand.Text() // some pairs share a slot
		}
		forEach(transfers, func(i int) {
			id := fmt.Sprint("t-", i)
			for _, step := range []struct {
				account string
				amount  int64
				want    luatx.Outcome
			}{
				{from[i], -30, luatx.Committed},
				{to[i], 30, luatx.Committed},
				{to[i], 30, luatx.Duplicate}, // the event is delivered twice
			} {
				if outcome, err := move(step.account, id, step.amount); err != nil || outcome != step.want {
					t.Errorf("%s at %s: %v, %v; want %v", id, step.account, outcome, err, step.want)
				}
			}
		})
		lost := 0
		for i := range transfers {
			if client.Get(ctx, rig.Key(t, tr, to[i], "balance")).Val() != "30" {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("%d of %d deposits are lost", lost, transfers)
		}
	})
}

// TestResolveDoesNotMistakeTheIDOfAnotherAggregate drops the request of a commit after another aggregate of the slot has
// committed the same id.
func TestResolveDoesNotMistakeTheIDOfAnotherAggregate(t *testing.T) {
	t.Parallel()
	proxy, through, _ := rig.Proxied(t)
	ctx := redistest.Soon(t)
	tr := rig.NewTransactor(t, through, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1).WithPrefix(c.Namespace) })
	commit := func(ctx context.Context, aggregate string) error {
		return assert.ErrOf(tr.Transact(ctx, aggregate, rig.Incr, luatx.WithID("x")))
	}
	redistest.Must(t, commit(ctx, "a"))
	var deaf atomic.Bool
	deaf.Store(true)
	proxy.On(func(cmd []string) respproxy.Action {
		if deaf.Load() && strings.EqualFold(cmd[0], "evalsha") {
			return respproxy.DropRequest()
		}
		return respproxy.Pass()
	})
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	err := commit(short, "b")
	unknown, ok := errors.AsType[*luatx.UnknownError](err)
	if !ok {
		t.Fatalf("error %v", err)
	}
	deaf.Store(false)
	if result, err := tr.Resolve(ctx, unknown.Receipt); !errors.Is(err, luatx.ErrExpired) {
		t.Errorf("resolved: %v, %v; want ErrExpired", result.Outcome, err)
	}
}

func TestKeyEscapesPartsAndRejectsInvalidIDs(t *testing.T) {
	t.Parallel()
	one := luatx.Partitions(1).Tags()[0]
	for _, c := range []struct {
		keyspace  luatx.Keyspace
		aggregate string
		parts     []string
		want      string
	}{
		{luatx.OwnTags(), "order-17", []string{"lines"}, "{order-17}:lines"},
		{luatx.Keyspace{}, "order-17", nil, "{order-17}"},
		{luatx.OwnTags().WithPrefix("shop"), "order-17", []string{"lines", "1"}, "shop:{order-17}:lines:1"},
		{luatx.Partitions(1), "order-17", []string{"lines"}, "{" + one + "}:order-17:lines"},
		{luatx.Partitions(1).WithPrefix("shop"), "order-17", nil, "shop:{" + one + "}:order-17"},
		{luatx.OwnTags(), "a{b}c:d%e\n", []string{"}"}, "{a%7Bb%7Dc%3Ad%25e%0A}:%7D"},
		{luatx.OwnTags(), "Müller", nil, "{Müller}"},
	} {
		if got, err := c.keyspace.Key(c.aggregate, c.parts...); err != nil || got != c.want {
			t.Errorf("Key(%q, %q) = %q, %v; want %q", c.aggregate, c.parts, got, err, c.want)
		}
	}
	for name, id := range map[string]string{"empty": "", "long": strings.Repeat("x", 257), "not UTF-8": "a\xff"} {
		if _, err := luatx.OwnTags().Key(id); err == nil {
			t.Errorf("an id that is %s was taken", name)
		}
		if _, err := luatx.OwnTags().Key("a", id); err == nil {
			t.Errorf("a part that is %s was taken", name)
		}
	}
	for _, longest := range []string{strings.Repeat("x", 256), strings.Repeat("ü", 128)} {
		assert.NoError(t, assert.ErrOf(luatx.OwnTags().Key(longest, longest)), "an id and a part of 256 bytes")
	}
}

func TestPartitionsShareTheSlotsEvenlyAndKeepTheirTags(t *testing.T) {
	t.Parallel()
	assert.Equal(t, fmt.Sprint(luatx.Partitions(4).Tags()), "[5nw h85 7l1 b3k]", "the tags of four partitions")
	for _, n := range []int{1, 3, 16, 1000, slot.Count} {
		keyspace := luatx.Partitions(n)
		tags, slots := keyspace.Tags(), keyspace.Slots()
		seen := make(map[string]bool)
		for i, tag := range tags {
			seen[tag] = true
			if low, high := i*slot.Count/n, (i+1)*slot.Count/n; slots[i] < low || slots[i] >= max(high, low+1) || slot.OfTag(tag) != slots[i] {
				t.Errorf("partition %d of %d has slot %d", i, n, slots[i])
			}
		}
		assert.Equal(t, len(seen), n, "tags of %d partitions", n)
		used := make(map[string]int)
		for i := range 20 * n {
			tag, err := keyspace.Tag(fmt.Sprint("order-", i))
			if err != nil || !seen[tag] {
				t.Fatalf("tag %q: %v", tag, err)
			}
			used[tag]++
		}
		if n <= 16 && len(used) != n {
			t.Errorf("%d of %d partitions are used", len(used), n)
		}
	}
	assert.Equal(t, len(luatx.OwnTags().Slots()), slot.Count, "slots of own tags")
}

// FuzzKey checks that for any aggregate name, its keys have one tag and share its slot, two aggregates never share a key,
// and a key can be parsed into its parts.
func FuzzKey(f *testing.F) {
	f.Add("order-17", "order-18", "lines")
	f.Add("{", "}", "{}")
	f.Add("a:b", "a", "b")
	f.Add("%7B", "{", "x")
	f.Add("a\x00\x7f", "\n", strings.Repeat("ü", 129))
	f.Fuzz(func(t *testing.T, a, b, part string) {
		for _, keyspace := range []luatx.Keyspace{luatx.OwnTags(), luatx.Partitions(7).WithPrefix("p")} {
			key, err := keyspace.Key(a, part)
			if (err == nil) != (isID(a) && isID(part)) {
				t.Fatalf("Key(%q, %q): %v", a, part, err)
			}
			if err != nil {
				continue
			}
			tag, err := keyspace.Tag(a)
			if err != nil || slot.Of(key) != slot.OfTag(tag) || strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 {
				t.Errorf("key %q does not stand on tag %q alone (%v)", key, tag, err)
			}
			if other, err := keyspace.Key(b, part); err == nil && (other == key) != (a == b) {
				t.Errorf("aggregates %q and %q: keys %q and %q", a, b, key, other)
			}
			pieces := strings.Split(key, ":")
			for i, want := range map[int]string{len(pieces) - 2: a, len(pieces) - 1: part} {
				piece := strings.TrimSuffix(strings.TrimPrefix(pieces[i], "{"), "}")
				if got, err := url.PathUnescape(piece); err != nil || got != want || strings.ContainsAny(piece, "\x00\n\x1f\x7f") {
					t.Errorf("key %q: %q is %q again (%v), want %q", key, piece, got, err, want)
				}
			}
		}
	})
}

// isID reports whether the keyspace accepts a text as an id or a part.
func isID(s string) bool { return s != "" && len(s) <= 256 && utf8.ValidString(s) }
