package commit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// transfer moves money between two hashes and emits an event.
var transfer = luatx.Procedure{
	Name: "transfer",
	Keys: []string{"from", "to"},
	Args: []string{"amount"},
	Source: `
amount = tonumber(amount)
local balance = tonumber(redis.call('HGET', from, 'balance') or 0)
if balance < amount then abort('insufficient funds') end
redis.call('HINCRBY', from, 'balance', -amount)
redis.call('HINCRBY', to, 'balance', amount)
emit{type = 'transferred', source = '/bank', data = {amount = amount}}
return balance - amount`,
}

func withProcedures(procedures ...luatx.Procedure) func(*luatx.Config) {
	return func(c *luatx.Config) { c.Procedures = procedures }
}

func TestProcedureRunsInsideTheCommit(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, withProcedures(transfer))
		from, to, log := rig.Key(t, tr, "a", "from"), rig.Key(t, tr, "a", "to"), rig.Key(t, tr, "a", "log")
		client.HSet(ctx, from, "balance", 10)
		var left *redis.Cmd
		var logged *redis.IntCmd
		run := func(amount int) error {
			return assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				tx.Pipeline().HSet(ctx, to, "touched", amount)
				left = tx.Call("transfer", []string{from, to}, amount)
				assert.Is(t, left.Err(), luatx.ErrNotCommitted, "the reply before the commit")
				logged = tx.Pipeline().RPush(ctx, log, amount)
				return nil
			}, luatx.WithID(fmt.Sprint(amount))))
		}
		redistest.Must(t, run(7))
		if n, err := left.Int64(); err != nil || n != 3 || logged.Val() != 1 {
			t.Errorf("replies %v, %v", left, logged)
		}
		if client.HGet(ctx, from, "balance").Val() != "3" || client.HGet(ctx, to, "balance").Val() != "7" {
			t.Errorf("balances %v, %v", client.HGetAll(ctx, from).Val(), client.HGetAll(ctx, to).Val())
		}
		events, bodies := eventsOf(t, client, tr)
		if len(events) != 1 {
			t.Fatalf("events: %v", events)
		}
		msg, err := outbox.Decode([]byte(bodies[0]))
		if err != nil || msg.ID() != events[0] || msg.Type() != "transferred" || string(msg.Data) != `{"amount":7}` {
			t.Errorf("event %s: %s, %v", events[0], bodies[0], err)
		}

		before := rig.Dump(t, client, tr)
		var aborted *luatx.AbortError
		if err := run(8); !errors.As(err, &aborted) || aborted.Reason != "insufficient funds" || aborted.Procedure != "transfer" || aborted.Index != 1 {
			t.Errorf("error %v", err)
		}
		if !errors.As(left.Err(), &aborted) {
			t.Errorf("the call answers %v", left.Err())
		}
		rig.NoTrace(t, client, tr, before)
	})
}

func TestSentEventsOfProceduresAreRememberedIfTheirIDsWereGiven(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, withProcedures(luatx.Procedure{Name: "emit", Source: `
emit{type = 'derived', source = '/s'}
emit('{}', 'argument')
emit{type = 'attribute', source = '/s', id = 'attribute'}`}))
		redistest.Must(t, assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			tx.Call("emit", nil)
			return nil
		})))
		ids, _ := eventsOf(t, client, tr)
		assert.Equal(t, len(ids), 3, "events")
		for _, id := range ids {
			settle(t, tr, id, "sent")
		}
		ids, _ = eventsOf(t, client, tr)
		slices.Sort(ids)
		assert.Equal(t, fmt.Sprint(ids), "[argument attribute]", "remembered events")
	})
}

// eventsOf lists the events of the shard of aggregate a.
func eventsOf(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor) (ids, bodies []string) {
	t.Helper()
	for id, body := range client.HGetAll(t.Context(), shardKey(tr, "a", "entries")).Val() {
		ids, bodies = append(ids, id), append(bodies, body)
	}
	return ids, bodies
}

// TestProcedureThatViolatesARuleChangesNothing runs procedures that violate one rule each. The error names the rule.
func TestProcedureThatViolatesARuleChangesNothing(t *testing.T) {
	t.Parallel()
	const write = "redis.call('SET', k, 'written') "
	for _, c := range []struct{ name, source, want string }{
		{"undeclared key", write + "redis.call('SET', k .. '2', 'v')", "k2 was not declared"},
		{"undeclared by pcall", write + "redis.pcall('GET', k .. '2')", "k2 was not declared"},
		{"one of several keys", write + "redis.call('DEL', k, k .. '2')", "k2 was not declared"},
		{"a key of luatx", write + "redis.call('DEL', (string.gsub(k, '}.*', '}:entries')))", ":entries was not declared"},
		{"too many calls", write + "for i = 1, 50 do redis.call('GET', k) end", "more than 50 calls"},
		{"too many by pcall", write + "for i = 1, 50 do redis.pcall('GET', k) end", "more than 50 calls"},
		{"blocks", write + "redis.call('BLPOP', k, 1)", "not for procedures"},
		{"spans the keyspace", write + "redis.call('FLUSHALL')", "not for procedures"},
		{"nothing luatx knows", write + "redis.call('get:2', k)", "not for procedures"},
		{"arity", write + "redis.call('SET', k)", "wrong number of arguments"},
		{"server's error", write + "redis.call('HSET', k, 'f', 'v')", "WRONGTYPE"},
		{"server's error, returned", write + "return redis.pcall('HSET', k, 'f', 'v')", "WRONGTYPE"},
		{"error of its own", write + "return redis.error_reply('MINE no')", "MINE no"},
		{"raised", write + "error('raised')", "raised"},
		{"Lua error", write + "local x = nil\nreturn x.y", "procedure rule:2"},
		{"past its redis", write + "return _G.redis.call('SET', 'x', 'y')", "procedure rule:1"},
		{"past its redis by the name of Valkey", write + "server.call('SET', k .. '2', 'v')", "k2 was not declared"},
		{"text as code", write + "loadstring('return 1')()", "procedure rule:1"},
		{"an event without a type", write + "emit{source = 's'}", "no type"},
		{"no event", write + "emit(5)", "neither"},
		{"an event whose id is a number", write + "emit{type = 't', source = '/s', id = 123456789012345}", "neither"},
		{"the same event with another body", write + "emit('a', 'id') emit('b', 'id')", "another body"},
		{"an event without a body", write + "emit('', 'id')", "neither"},
		{"a body with a mark of luatx", write + "emit('=x', 'id')", "neither"},
		{"an event after the year 9999", write + "emit('{}', 'id', {at = 253402300800000})", "no time"},
		{"a key that is too long", write + "emit('{}', 'id', {key = string.rep('k', 257)})", "1 to 256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				rule := luatx.Procedure{Name: "rule", Keys: []string{"k"}, Source: c.source}
				ctx := redistest.Soon(t)
				tr := rig.NewTransactor(t, client, withProcedures(rule), func(cfg *luatx.Config) { cfg.ProcedureCalls = 50 })
				k, other := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "other")
				client.Set(ctx, k, "old", 0)
				before := rig.Dump(t, client, tr)
				for _, last := range []bool{true, false} {
					_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
						tx.Pipeline().Append(ctx, other, "more")
						tx.Call("rule", []string{k})
						if !last {
							tx.Pipeline().Set(ctx, k, "after", 0)
						}
						return nil
					}, luatx.WithID("rule"))
					var failed *luatx.CommandError
					if !errors.As(err, &failed) || failed.Index != 1 || !strings.Contains(failed.Text, c.want) {
						t.Errorf("error %v, want %s", err, c.want)
					}
					rig.NoTrace(t, client, tr, before)
				}
			})
		})
	}
}

// TestProcedureMayMakeAsManyCallsAsConfigured checks that each call of a procedure has the whole budget, which includes
// failing calls.
func TestProcedureMayMakeAsManyCallsAsConfigured(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		const budget = 5
		calls := luatx.Procedure{Name: "calls", Keys: []string{"k"}, Args: []string{"n"}, Source: `
redis.call('INCR', k)
redis.pcall('HGET', k, 'f')
for i = 3, tonumber(n) do redis.call('GET', k) end`}
		ctx := redistest.Soon(t)
		tr := rig.NewTransactor(t, client, withProcedures(calls), func(c *luatx.Config) { c.ProcedureCalls = budget })
		k := rig.Key(t, tr, "a", "k")
		run := func(n int) error {
			return assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				tx.Call("calls", []string{k}, n)
				tx.Call("calls", []string{k}, n)
				return nil
			}))
		}
		if err := run(budget); err != nil || client.Get(ctx, k).Val() != "2" {
			t.Errorf("%d calls: %v, %v", budget, err, client.Get(ctx, k))
		}
		var failed *luatx.CommandError
		if err := run(budget + 1); !errors.As(err, &failed) || !strings.Contains(failed.Text, "more than 5 calls") || client.Get(ctx, k).Val() != "2" {
			t.Errorf("%d calls: %v, %v", budget+1, err, client.Get(ctx, k))
		}
	})
}

func TestEventsOfProceduresCountAndAFullOutboxUndoesTheirWrites(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	flood := luatx.Procedure{Name: "flood", Keys: []string{"k"}, Args: []string{"n"}, Source: `
redis.call('SET', k, n)
for i = 1, n do emit('body ' .. i, k .. i) end`}
	ctx := redistest.Soon(t)
	tr := rig.NewTransactor(t, client, withProcedures(flood), func(c *luatx.Config) { c.OutboxCapacity = 5 })
	k := rig.Key(t, tr, "a", "k")
	run := func(n int, own int) error {
		return assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			for i := range own {
				if err := tx.Emit(luatx.Event{ID: fmt.Sprint(k, n, "own", i), Data: "own"}); err != nil {
					return err
				}
			}
			tx.Call("flood", []string{k}, n)
			return nil
		}))
	}
	before := rig.Dump(t, client, tr)
	for _, c := range [][2]int{{6, 0}, {4, 2}} {
		assert.Is(t, run(c[0], c[1]), luatx.ErrOutboxFull, "%d emitted and %d of its own", c[0], c[1])
		rig.NoTrace(t, client, tr, before)
	}
	rig.NoError(t, run(3, 2))
	if ids, _ := eventsOf(t, client, tr); len(ids) != 5 {
		t.Errorf("%d events", len(ids))
	}
}

func TestInvalidProceduresAreRejected(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx := redistest.Soon(t)
	for name, p := range map[string]luatx.Procedure{
		"no name":     {Source: "return 1"},
		"quoted name": {Name: "a'b", Source: "return 1"},
		"no source":   {Name: "a"},
		"a keyword":   {Name: "a", Keys: []string{"end"}, Source: "return 1"},
		"redis":       {Name: "a", Args: []string{"redis"}, Source: "return 1"},
		"twice":       {Name: "a", Keys: []string{"x"}, Args: []string{"x"}, Source: "return 1"},
	} {
		if _, err := luatx.New(client, luatx.Config{Namespace: "n", Procedures: []luatx.Procedure{p}}); err == nil || !strings.Contains(err.Error(), "Config.Procedures") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := luatx.New(client, luatx.Config{Namespace: "n", Procedures: []luatx.Procedure{transfer, transfer}}); err == nil {
		t.Error("two procedures of one name")
	}

	tr := rig.NewTransactor(t, client, withProcedures(transfer))
	k := rig.Key(t, tr, "a", "k")
	for name, c := range map[string]struct {
		call func(*luatx.Tx) *redis.Cmd
		want error
	}{
		"unknown":      {func(tx *luatx.Tx) *redis.Cmd { return tx.Call("no", nil) }, luatx.ErrCommandRefused},
		"keys":         {func(tx *luatx.Tx) *redis.Cmd { return tx.Call("transfer", []string{k}, 1) }, luatx.ErrCommandRefused},
		"arguments":    {func(tx *luatx.Tx) *redis.Cmd { return tx.Call("transfer", []string{k, k}) }, luatx.ErrCommandRefused},
		"another slot": {func(tx *luatx.Tx) *redis.Cmd { return tx.Call("transfer", []string{k, rig.Key(t, tr, "b", "k")}, 1) }, luatx.ErrCrossSlot},
	} {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			c.call(tx)
			return nil
		})
		assert.Is(t, err, c.want, "%s", name)
	}

	broken, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t), Procedures: []luatx.Procedure{
		transfer, {Name: "broken", Source: "local x = 1\nreturn x +"},
	}})
	redistest.Must(t, err)
	_, err = broken.Transact(ctx, "a", func(tx *luatx.Tx) error { tx.Call("broken", nil); return nil })
	assert.ErrorContains(t, err, "procedure broken:", "a source that does not compile")
}

// TestScriptTextIsConstantPerConfiguration also checks that it is the text that the server has.
func TestScriptTextIsConstantPerConfiguration(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, withProcedures(transfer))
	same, err := luatx.New(client, tr.Config())
	redistest.Must(t, err)
	other := rig.NewTransactor(t, client, withProcedures(transfer, luatx.Procedure{Name: "more", Source: "return 1"}))
	rig.Warm(t, tr)
	sha, again, others := rig.ScriptSHA(t, tr, "commit"), rig.ScriptSHA(t, same, "commit"), rig.ScriptSHA(t, other, "commit")
	if len(sha) != 40 || sha != again || sha == others || !server.Admin(t).ScriptExists(ctx, sha).Val()[0] {
		t.Errorf("SHA1s %s, %s, %s", sha, again, others)
	}
}

func TestAbortedMessageIsDeliveredAgainAndRejectedMessageIsNot(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr := rig.NewTransactor(t, client, withProcedures(
			luatx.Procedure{Name: "abort", Keys: []string{"k"}, Source: "redis.call('SET', k, 1) abort('later')"},
			luatx.Procedure{Name: "reject", Keys: []string{"k"}, Source: "redis.call('SET', k, 1) reject('never')"},
		))
		k := rig.Key(t, tr, "a", "k")
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
		for name, reason := range map[string]string{"abort": "later", "reject": "never"} {
			r := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
				tx, _ := luatx.TxFromContext(ctx)
				return nil, luatx.Queued(tx.Call(name, []string{k}))
			})
			_, err := r.Process(ctx, in.Deliver("c", rig.Order(name)))
			aborted, ok := errors.AsType[*luatx.AbortError](err)
			if !ok || aborted.Reason != reason || aborted.Procedure != name {
				t.Fatalf("%s: %v", name, err)
			}
			if permanent := name == "reject"; aborted.Permanent != permanent || message.IsPermanent(err) != permanent {
				t.Errorf("%s: permanent %t, %t", name, aborted.Permanent, message.IsPermanent(err))
			}
		}
		if client.Exists(ctx, k).Val() != 0 || in.Pending() != 2 {
			t.Errorf("the write is there: %d, %d pending", client.Exists(ctx, k).Val(), in.Pending())
		}
	})
}

func TestDoWithACommandNameThatIsNotAStringReturnsAReadableError(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client)
	for want, name := range map[string]any{`use Do(ctx, "SET", ...)`: []byte("SET"), "the command name is 42 of type int": 42} {
		_, err := tr.Transact(t.Context(), "a", func(tx *luatx.Tx) error {
			return tx.Pipeline().Do(t.Context(), name, rig.Key(t, tr, "a", "k"), "v").Err()
		})
		if !errors.Is(err, luatx.ErrCommandRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", name, err)
		}
	}
}

const (
	bankAccounts = 100
	bankOpening  = 100
	bankTellers  = 64
)

// bankTransfers is the number of transfers on one server.
func bankTransfers() int64 {
	if os.Getenv("LUATX_VERIFY") != "" {
		return 20_000
	}
	return 4_000
}

// way moves money, and counts the runs of its function.
type way func(ctx context.Context, tr *luatx.Transactor, from, to string, amount int64, runs *atomic.Int64) error

var errFunds = errors.New("insufficient funds")

func TestMoneyThatMovesNeitherAppearsNorVanishesNorOverdrawsAnAccount(t *testing.T) {
	t.Parallel()
	ways := map[string]way{
		"guarded reads": func(ctx context.Context, tr *luatx.Transactor, from, to string, amount int64, runs *atomic.Int64) error {
			return assert.ErrOf(tr.Transact(ctx, "bank", func(tx *luatx.Tx) error {
				runs.Add(1)
				balance, err := tx.Read().HGet(ctx, from, "balance").Int64()
				if err != nil {
					return err
				}
				if balance < amount {
					return errFunds
				}
				tx.Pipeline().HSet(ctx, from, "balance", balance-amount)
				return luatx.Queued(tx.Pipeline().HIncrBy(ctx, to, "balance", amount))
			}))
		},
		"procedure": func(ctx context.Context, tr *luatx.Transactor, from, to string, amount int64, runs *atomic.Int64) error {
			_, err := tr.Transact(ctx, "bank", func(tx *luatx.Tx) error {
				runs.Add(1)
				tx.Call("transfer", []string{from, to}, amount)
				return nil
			})
			if aborted, ok := errors.AsType[*luatx.AbortError](err); ok && aborted.Reason == errFunds.Error() {
				return errFunds
			}
			return err
		},
	}
	for name, move := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("redis", func(t *testing.T) {
				t.Parallel()
				testMoney(t, redistest.Shared(t).Client(t), bankTransfers(), move)
			})
			t.Run("cluster", func(t *testing.T) {
				t.Parallel()
				testMoney(t, redistest.SharedCluster(t).Client(t), bankTransfers()/10, move)
			})
		})
	}
}

func testMoney(t *testing.T, client redis.UniversalClient, transfers int64, move way) {
	t.Helper()
	ctx := t.Context()
	tr := rig.NewTransactor(t, client, withProcedures(transfer))
	accounts := make([]string, bankAccounts)
	for i := range accounts {
		accounts[i] = rig.Key(t, tr, "bank", strconv.Itoa(i))
		client.HSet(ctx, accounts[i], "balance", bankOpening)
	}
	var left, moved, refused, runs, gaveUp atomic.Int64
	left.Store(transfers)
	var tellers sync.WaitGroup
	for range bankTellers {
		tellers.Go(func() {
			for left.Add(-1) >= 0 {
				from := rand.IntN(bankAccounts)
				to := (from + 1 + rand.IntN(bankAccounts-1)) % bankAccounts
				amount := 1 + rand.Int64N(2*bankOpening)
				for {
					err := move(ctx, tr, accounts[from], accounts[to], amount, &runs)
					switch {
					case err == nil:
						moved.Add(1)
					case errors.Is(err, errFunds):
						refused.Add(1)
					case errors.Is(err, luatx.ErrConflict):
						gaveUp.Add(1)
						continue
					default:
						t.Error(err)
						return
					}
					break
				}
			}
		})
	}
	tellers.Wait()
	sum := int64(0)
	for _, account := range accounts {
		balance, err := client.HGet(ctx, account, "balance").Int64()
		if err != nil || balance < 0 {
			t.Errorf("%s holds %d, %v", account, balance, err)
		}
		sum += balance
	}
	t.Logf("%d transfers moved money, %d found too little, %d conflicts, %d calls gave up and came again",
		moved.Load(), refused.Load(), runs.Load()-transfers-gaveUp.Load(), gaveUp.Load())
	if sum != bankAccounts*bankOpening || moved.Load()+refused.Load() != transfers || moved.Load() == 0 || refused.Load() == 0 {
		t.Errorf("the accounts hold %d, want %d", sum, bankAccounts*bankOpening)
	}
}
