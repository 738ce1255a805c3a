package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

// at returns the position of a message in partition 0 of orders.
func at(offset int, tenure *message.Tenure, change ...func(*message.Position)) message.Position {
	p := message.Position{Source: "orders", Partition: "0", Offset: fmt.Sprintf("%020d", offset), Tenure: tenure}
	for _, f := range change {
		f(&p)
	}
	return p
}

// ordered returns an order of aggregate a with a position.
func ordered(p message.Position) *message.Message {
	return message.New([]byte(`{"n":1}`), rig.Order("order-"+strings.TrimLeft(p.Offset, "0")), message.NewAckingFrom(message.AckingConfig{Position: p}))
}

// counting is a router whose handler increments a counter, and fails afterwards with the error that fail holds.
type counting struct {
	t      testing.TB
	client redis.UniversalClient
	tr     *luatx.Transactor
	router *message.Router
	key    string
	fail   error
	runs   int
}

func newCounting(t testing.TB, client redis.UniversalClient, cfg inbox.PositionConfig, inside ...message.Middleware) *counting {
	t.Helper()
	c := &counting{t: t, client: client, tr: rig.NewTransactor(t, client)}
	c.key = rig.Key(t, c.tr, "a", "n")
	mw := append([]message.Middleware{luatx.Middleware(c.tr), inbox.Position(cfg)}, inside...)
	c.router = router(t, "bill", func(ctx context.Context) error {
		c.runs++
		return errors.Join(luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, c.key)), c.fail)
	}, mw...)
	return c
}

// process handles a message and returns its error.
func (c *counting) process(msg *message.Message) error {
	c.t.Helper()
	_, err := c.router.Process(redistest.Soon(c.t), msg)
	return err
}

// applied fails the test unless the counter has a value.
func (c *counting) applied(want int) {
	c.t.Helper()
	got, err := c.client.Get(c.t.Context(), c.key).Int()
	if err != nil && !errors.Is(err, redis.Nil) || got != want {
		c.t.Errorf("applied %d times, want %d; %v", got, want, err)
	}
}

// rewind sets the position of a partition back to an offset, or to the beginning if that is empty.
func (c *counting) rewind(partition, offset string) {
	c.t.Helper()
	op, err := admin.NewOperator(c.tr, admin.OperatorConfig{Client: c.client, Name: "alice"})
	redistest.Must(c.t, err)
	_, err = op.Rewind(c.t.Context(), admin.Rewind{
		Scope: c.tr.Config().Namespace + "/bill", Source: "orders", Partition: partition, Offset: offset, Reason: "drill",
	})
	redistest.Must(c.t, err)
}

// home returns the slot of aggregate a.
func (c *counting) home() int {
	tag, err := c.tr.Keyspace().Tag("a")
	redistest.Must(c.t, err)
	return slot.OfTag(tag)
}

func TestMessageAtOrBelowThePositionIsADuplicate(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		c, tenure := newCounting(t, client, inbox.PositionConfig{}), &message.Tenure{}
		for _, offset := range []int{1, 2, 2, 1, 7, 6, 7} {
			msg := ordered(at(offset, tenure))
			if err := c.process(msg); err != nil {
				t.Errorf("offset %d: %v", offset, err)
			}
			wantSettled(t, msg, true)
		}
		c.applied(3)
		shard := link.Of(c.tr).Scripts.Shard(c.home())
		if n := client.HLen(t.Context(), shard.Key("inbox:a")).Val(); n != 1 {
			t.Errorf("the inbox has %d fields, want the one of the identity", n)
		}
		found, err := link.Of(c.tr).Scripts.PositionIn(t.Context(), []int{c.home()}, c.tr.Config().Namespace+"/bill\x00orders\x000")
		if p := found[c.home()]; err != nil || p.Offset != fmt.Sprintf("%020d", 7) || p.Generation != 1 || p.Broken || p.Malformed {
			t.Errorf("position %+v, %v", p, err)
		}
	})
}

func TestPositionRejectsMessagesThatBreakTheOrder(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		c, old := newCounting(t, client, inbox.PositionConfig{}), &message.Tenure{}
		redistest.Must(t, c.process(ordered(at(1, old))))
		redistest.Must(t, c.process(ordered(at(2, &message.Tenure{})))) // a newer owner

		stale := ordered(at(3, old))
		if err := c.process(stale); !errors.Is(err, luatx.ErrFenced) {
			t.Errorf("the former owner commits: %v", err)
		}
		if !rig.Settled(stale) || stale.Err() != nil {
			t.Errorf("the message of the former owner was not released: %v", stale.Err())
		}
		if err := c.process(ordered(at(2, old))); err != nil {
			t.Errorf("the former owner's duplicate: %v", err)
		}

		owner := &message.Tenure{}
		after := func(offset int) func(*message.Position) {
			return func(p *message.Position) { p.After = fmt.Sprintf("%020d", offset) }
		}
		var early *message.EarlyError
		if err := c.process(ordered(at(5, owner, after(4)))); !errors.As(err, &early) || early.Committed != fmt.Sprintf("%020d", 2) || message.IsPermanent(err) {
			t.Errorf("a message before the one in front of it: %v", err)
		}
		redistest.Must(t, c.process(ordered(at(5, owner, after(2)))))

		var epoch *message.EpochError
		anew := func(p *message.Position) { p.Epoch = "2" }
		if err := c.process(ordered(at(6, owner, anew))); !errors.As(err, &epoch) || epoch.Found != "2" || message.IsPermanent(err) {
			t.Errorf("another epoch: %v", err)
		}
		c.applied(3)
	})
}

// Kafka does not deliver a message again whose commit a failover loses, so later messages must not wait for it.
func TestMessageOfASourceThatCannotRepeatCommitsAfterALostCommit(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		c, admin := newCounting(t, client, inbox.PositionConfig{}), redistest.AsAdmin(t, client)
		positions := link.Of(c.tr).Scripts.Shard(c.home()).PositionsKey()
		tenure := &message.Tenure{}
		redistest.Must(t, c.process(ordered(at(1, tenure))))
		replicated := admin.HGetAll(t.Context(), positions).Val()
		redistest.Must(t, c.process(ordered(at(2, tenure))))
		redistest.Must(t, admin.HSet(t.Context(), positions, replicated).Err())

		redistest.Must(t, c.process(ordered(at(3, tenure))))
		c.applied(3)
		redistest.Must(t, c.process(ordered(at(2, tenure))))
		c.applied(3)
	})
}

func TestSharedTenuresDoNotFenceEachOther(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		c := newCounting(t, client, inbox.PositionConfig{})
		one, other := &message.Tenure{Shared: true}, &message.Tenure{Shared: true}
		for offset := range 6 {
			redistest.Must(t, c.process(ordered(at(offset, []*message.Tenure{one, other}[offset%2]))))
		}
		c.applied(6)
	})
}

func TestMessageWithoutAPositionIsAWiringError(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		c := newCounting(t, client, inbox.PositionConfig{})
		var unsafe *message.WiringError
		if err := c.process(order("1")); !errors.As(err, &unsafe) {
			t.Errorf("got %v", err)
		}
		invalid := []func(*message.Position){
			func(p *message.Position) { p.Tenure = nil }, func(p *message.Position) { p.Source = "" },
			func(p *message.Position) { p.Offset = "12a" }, func(p *message.Position) { p.After = "1" },
			func(p *message.Position) { p.Partition = "a\x00b" }, func(p *message.Position) { p.After = p.Offset },
		}
		for i, change := range invalid {
			if err := c.process(ordered(at(1, &message.Tenure{}, change))); err == nil || !message.IsPermanent(err) {
				t.Errorf("invalid position %d: %v", i, err)
			}
		}
		if c.runs > 0 {
			t.Errorf("the handler ran %d times", c.runs)
		}
	})
}

func TestMessageThatFailsForGoodIsParkedWithItsPosition(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, test := range map[string]struct {
			cfg      inbox.PositionConfig
			fail     error
			failures int // before it is parked
		}{
			"after a permanent error":      {fail: message.Permanent(errHandler)},
			"after its attempts":           {cfg: inbox.PositionConfig{MaxAttempts: 3}, fail: errHandler, failures: 2},
			"into a stream that was named": {cfg: inbox.PositionConfig{DeadLetter: "graveyard"}, fail: message.Permanent(errHandler)},
		} {
			c, tenure := newCounting(t, client, test.cfg), &message.Tenure{}
			c.fail = test.fail
			for n := range test.failures {
				msg := ordered(at(4, tenure))
				if err := c.process(msg); !errors.Is(err, errHandler) {
					t.Fatalf("%s: failure %d: %v", name, n, err)
				}
				wantSettled(t, msg, false)
			}
			parked := ordered(at(4, tenure))
			if err := c.process(parked); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			wantSettled(t, parked, true)
			c.applied(0)

			key := c.tr.Keyspace().TagKey(slot.Text(c.home()), "orders", "dead")
			if test.cfg.DeadLetter != "" {
				key = c.tr.Keyspace().TagKey(slot.Text(c.home()), test.cfg.DeadLetter)
			}
			letters, err := client.XRange(t.Context(), key, "-", "+").Result()
			if err != nil || len(letters) != 1 {
				t.Fatalf("%s: dead letters %v, %v", name, letters, err)
			}
			values := letters[0].Values
			if values["data"] != `{"n":1}` || values["ce_id"] != "order-4" || values["ce_deadletterreason"] != errHandler.Error() {
				t.Errorf("%s: the dead letter has %v", name, values)
			}
			redistest.Must(t, client.Del(t.Context(), key).Err())

			c.fail = nil
			redistest.Must(t, c.process(ordered(at(4, &message.Tenure{}))))
			c.applied(0)
			redistest.Must(t, c.process(ordered(at(5, &message.Tenure{}))))
			c.applied(1)
		}
	})
}

// TestSharedTenureContinuesBehindARewind checks that a rewind fences a shared tenure once, and that of a single owner for good.
func TestSharedTenureContinuesBehindARewind(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		c := newCounting(t, client, inbox.PositionConfig{})
		for i, tenure := range []*message.Tenure{{Shared: true}, {}} {
			partition := func(p *message.Position) { p.Partition = fmt.Sprint(i) }
			redistest.Must(t, c.process(ordered(at(1, tenure, partition))))
			c.rewind(fmt.Sprint(i), fmt.Sprintf("%020d", 1))
			if err := c.process(ordered(at(2, tenure, partition))); !errors.Is(err, luatx.ErrFenced) {
				t.Errorf("shared %t, the first message behind the rewind: %v, want ErrFenced", tenure.Shared, err)
			}
			err := c.process(ordered(at(2, tenure, partition)))
			if tenure.Shared && err != nil || !tenure.Shared && !errors.Is(err, luatx.ErrFenced) {
				t.Errorf("shared %t, the same message again: %v", tenure.Shared, err)
			}
		}
		c.applied(3)
	})
}

// TestOrderHoldsBehindARewindToTheBeginning checks that a message which follows another one does not commit before it, although
// the position has no offset.
func TestOrderHoldsBehindARewindToTheBeginning(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		c := newCounting(t, client, inbox.PositionConfig{})
		redistest.Must(t, c.process(ordered(at(1, &message.Tenure{}))))
		c.rewind("0", "")
		owner := &message.Tenure{}
		second := at(2, owner, func(p *message.Position) { p.After = fmt.Sprintf("%020d", 1) })
		var early *message.EarlyError
		if err := c.process(ordered(second)); !errors.As(err, &early) || early.Committed != "" {
			t.Errorf("the second message before the first one: %v, want an EarlyError without a committed offset", err)
		}
		redistest.Must(t, c.process(ordered(at(1, owner))))
		redistest.Must(t, c.process(ordered(second)))
		c.applied(3)
	})
}

// TestMessageWithoutAnIdentityIsParkedWithItsPosition checks that it is written as JSON, and that the following message is applied.
func TestMessageWithoutAnIdentityIsParkedWithItsPosition(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		var nameless error
		c, tenure := newCounting(t, client, inbox.PositionConfig{MessageID: func(msg *message.Message) (message.Identity, error) {
			return message.Identity{Source: "shop", ID: msg.ID()}, nameless
		}}), &message.Tenure{}
		nameless = errors.New("the order has no number")
		msg := message.New(map[string]int{"n": 7}, rig.Order("x"), message.NewAckingFrom(message.AckingConfig{Position: at(1, tenure)}))
		redistest.Must(t, c.process(msg))
		wantSettled(t, msg, true)
		letters, err := client.XRange(t.Context(), c.tr.Keyspace().TagKey(slot.Text(c.home()), "orders", "dead"), "-", "+").Result()
		if err != nil || len(letters) != 1 || letters[0].Values["data"] != `{"n":7}` || letters[0].Values["ce_deadletterreason"] != "inbox: the order has no number" {
			t.Errorf("dead letters %v, %v", letters, err)
		}
		nameless = nil
		redistest.Must(t, c.process(ordered(at(1, tenure))))
		c.applied(0)
		redistest.Must(t, c.process(ordered(at(2, tenure))))
		c.applied(1)
	})
}

func TestIDsOfEventsComeFromTheIdentityOfTheMessage(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	emits := message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			tx, _ := luatx.TxFromContext(ctx)
			if err := rig.Emit(tx); err != nil {
				return nil, err
			}
			return next(ctx, msg)
		}
	}, message.Traits{Name: "emits"})
	emitted := func(id string, offset int) []string {
		t.Helper()
		c := newCounting(t, client, inbox.PositionConfig{Scope: "bills"}, emits)
		position := message.NewAckingFrom(message.AckingConfig{Position: at(offset, &message.Tenure{})})
		redistest.Must(t, c.process(message.New([]byte("{}"), rig.Order(id), position)))
		ids, err := client.HKeys(t.Context(), link.Of(c.tr).Scripts.Shard(c.home()).Key("entries")).Result()
		redistest.Must(t, err)
		return ids
	}
	first := emitted("x", 1)
	if again := emitted("x", 2); len(first) != 1 || !slices.Equal(again, first) {
		t.Errorf("events %v, and %v at another offset", first, again)
	}
	if other := emitted("y", 1); slices.Equal(other, first) {
		t.Errorf("events %v for another message", other)
	}
}

func TestParkedEntryOfAStreamIsADeadLetterOfTheStream(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, named := range []string{"", "graveyard"} {
			c := newCounting(t, client, inbox.PositionConfig{DeadLetter: named})
			c.fail = message.Permanent(errHandler)
			in := rig.Key(t, c.tr, "a", "orders")
			msg := deliver(t, client, in, "1")
			source, _ := msg.InputSource()
			msg.WithValue(group.EntryKey{}, group.Entry(fields{"id", "1"}))
			msg.SetAcking(message.NewAckingFrom(message.AckingConfig{Source: source, Position: at(1, &message.Tenure{})}))
			if err := c.process(msg); err != nil {
				t.Fatal(err)
			}
			pending, err := client.XPending(t.Context(), in, "g").Result()
			if err != nil || pending.Count != 0 {
				t.Errorf("%+v pending, %v", pending, err)
			}
			key := group.DeadLetterKey(in)
			if named != "" {
				key = c.tr.Keyspace().TagKey(slot.Text(c.home()), named)
			}
			dead, err := group.ReadDead(t.Context(), client, key, "-", "+", 10)
			if err != nil || len(dead) != 1 || dead[0].Foreign || dead[0].Stream != in || dead[0].Entry != source.Entry ||
				dead[0].Reason != errHandler.Error() || dead[0].Deliveries != 4 || fmt.Sprint(dead[0].Fields) != "[id 1]" {
				t.Errorf("dead letters of %s: %+v, %v", key, dead, err)
			}
		}
	})
}

func TestFailuresCountForOneMessageInOneTenure(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		c, owner, former := newCounting(t, client, inbox.PositionConfig{MaxAttempts: 2}), &message.Tenure{}, &message.Tenure{}
		c.fail = errHandler
		for name, p := range map[string]message.Position{"of the former owner": at(1, former), "of the owner": at(1, owner), "of the next message": at(2, owner)} {
			if err := c.process(ordered(p)); !errors.Is(err, errHandler) {
				t.Errorf("the first failure %s: %v", name, err)
			}
		}
	})
}

func TestMessageTakesEffectOnceForAllPositionsOfAScope(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, c := range []struct {
			scopes [2]string
			want   int
		}{{[2]string{"", ""}, 2}, {[2]string{"one", "one"}, 1}, {[2]string{"one", "two"}, 2}} {
			tr := rig.NewTransactor(t, client)
			key := rig.Key(t, tr, "a", "n")
			for i, handler := range []string{"bill", "ship"} {
				r := router(t, handler, func(ctx context.Context) error {
					return luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, key))
				}, luatx.Middleware(tr), inbox.Position(inbox.PositionConfig{Scope: c.scopes[i]}))
				_, err := r.Process(redistest.Soon(t), ordered(at(1, &message.Tenure{})))
				redistest.Must(t, err)
			}
			if got, err := client.Get(t.Context(), key).Int(); err != nil || got != c.want {
				t.Errorf("scopes %q: applied %d times, want %d; %v", c.scopes, got, c.want, err)
			}
		}
	})
}

// fields are those of an entry that was delivered four times.
type fields []string

func (f fields) Fields() []string  { return f }
func (f fields) Deliveries() int64 { return 4 }

func TestPrecheckAndFailedHandlerUseThePosition(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		c := newCounting(t, client, inbox.PositionConfig{}, inbox.Precheck())
		redistest.Must(t, c.process(ordered(at(1, &message.Tenure{}))))
		redistest.Must(t, c.process(ordered(at(1, &message.Tenure{}))))
		if c.runs != 1 {
			t.Errorf("the handler ran %d times, want once", c.runs)
		}
		plain := newCounting(t, client, inbox.PositionConfig{})
		redistest.Must(t, plain.process(ordered(at(1, &message.Tenure{}))))
		plain.fail = errHandler
		if err := plain.process(ordered(at(1, &message.Tenure{}))); err != nil {
			t.Errorf("a handler that fails because its message was applied: %v", err)
		}
	})
}

func TestPositionHoldsOnAServerThatRestoresOnlyStrings(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	list := rig.Key(t, tr, "a", "list")
	redistest.Must(t, client.RPush(ctx, list, "v").Err())
	r := router(t, "bill", func(ctx context.Context) error {
		pipe := luatx.CmdableFromContext(ctx, client)
		return errors.Join(luatx.Queued(pipe.LPop(ctx, list)), luatx.Queued(pipe.Set(ctx, list+"2", "v", 0)))
	}, luatx.Middleware(tr), inbox.Position(inbox.PositionConfig{}))
	_, err := r.Process(ctx, ordered(at(1, &message.Tenure{})))
	if failed, ok := errors.AsType[*luatx.CommandError](err); !ok || !strings.Contains(failed.Text, "is a list") {
		t.Errorf("error %v", err)
	}
}

func TestInvalidPositionConfigIsAnErrorAtStart(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	r := message.NewRouter(message.PipeConfig{})
	redistest.Must(t, r.Use(luatx.Middleware(rig.NewTransactor(t, client)), inbox.Position(inbox.PositionConfig{MaxAttempts: -1})))
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "PositionConfig.MaxAttempts is -1") {
		t.Errorf("%v", err)
	}
}
