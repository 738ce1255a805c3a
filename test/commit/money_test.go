package commit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
)

const (
	bankAccounts  = 100
	bankOpening   = 100
	bankTellers   = 64
	bankTransfers = 20_000
)

// way is a way of moving money; it counts the runs of its function.
type way func(ctx context.Context, tr *luatx.Transactor, from, to string, amount int64, runs *atomic.Int64) error

var errFunds = errors.New("insufficient funds")

// TestMoneyMoves holds that money which moves between accounts, by guarded reads or by a procedure, neither appears nor
// vanishes, and no account is overdrawn.
func TestMoneyMoves(t *testing.T) {
	t.Parallel()
	ways := map[string]way{
		"guarded reads": func(ctx context.Context, tr *luatx.Transactor, from, to string, amount int64, runs *atomic.Int64) error {
			_, err := tr.Transact(ctx, "bank", func(tx *luatx.Tx) error {
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
			})
			return err
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
				testMoney(t, redistest.Shared(t).Client(t), bankTransfers, move)
			})
			t.Run("cluster", func(t *testing.T) {
				t.Parallel()
				testMoney(t, redistest.SharedCluster(t).Client(t), bankTransfers/10, move)
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
