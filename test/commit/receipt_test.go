package commit_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
)

// TestResolve holds that a receipt tells what became of a commit which nobody answered: in; or not, and never.
func TestResolve(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"executed": true, "still on its way": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through, past := rig.Proxied(t)
			ctx := redistest.Soon(t)
			tr := rig.NewTransactor(t, through)
			n := rig.Key(t, tr, "a", "n")
			rig.Warm(t, tr)
			// The first commit is executed or waits; nothing after it arrives.
			hold := respproxy.NewHold()
			var deaf, first atomic.Bool
			deaf.Store(true)
			proxy.On(func(cmd []string) respproxy.Action {
				switch {
				case !deaf.Load() || !strings.EqualFold(cmd[0], "evalsha"):
					return respproxy.Pass()
				case !first.CompareAndSwap(false, true):
					return respproxy.DropRequest()
				case arrives:
					return respproxy.CutReply()
				}
				return respproxy.HoldBy(hold)
			})
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			_, err := tr.Transact(short, "a", func(tx *luatx.Tx) error {
				return luatx.Queued(tx.Pipeline().Incr(ctx, n))
			}, luatx.WithID("x"))
			unknown, ok := errors.AsType[*luatx.UnknownError](err)
			if !ok || !errors.Is(err, luatx.ErrOutcomeUnknown) {
				t.Fatalf("error %v", err)
			}
			deaf.Store(false)
			for range 2 {
				result, err := tr.Resolve(ctx, unknown.Receipt)
				if arrives && (err != nil || result.Outcome != luatx.Replayed) || !arrives && !errors.Is(err, luatx.ErrExpired) {
					t.Errorf("resolved: %v, %v", result, err)
				}
			}
			before := rig.Executed(t, past)
			hold.Release()
			if !arrives {
				redistest.Eventually(t, "the held commit to arrive", func() bool { return rig.Executed(t, past) > before })
				if past.Exists(ctx, n).Val() != 0 {
					t.Error("it took effect after it was resolved")
				}
			}
			if _, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				return luatx.Queued(tx.Pipeline().Incr(ctx, n))
			}, luatx.WithID("x")); err != nil {
				t.Error(err)
			}
			if got := past.Get(ctx, n).Val(); got != "1" {
				t.Errorf("applied %s times", got)
			}
		})
	}
}

// unknownCommit commits, loses the reply, and returns the receipt.
func unknownCommit(t testing.TB, proxy *respproxy.Proxy, tr *luatx.Transactor) luatx.Receipt {
	t.Helper()
	var over, executed atomic.Bool
	defer over.Store(true)
	proxy.On(func(cmd []string) respproxy.Action {
		switch {
		case over.Load() || !strings.EqualFold(cmd[0], "evalsha"):
			return respproxy.Pass()
		case !executed.Swap(true):
			return respproxy.CutReply()
		}
		return respproxy.CutRequest()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		return luatx.Queued(tx.Pipeline().Incr(ctx, rig.Key(t, tr, "a", "n")))
	}, luatx.WithID("x"))
	unknown, ok := errors.AsType[*luatx.UnknownError](err)
	if !ok {
		t.Fatalf("error %v", err)
	}
	return unknown.Receipt
}

func TestResolveAfterTheRetentionReturnsErrReceiptExpired(t *testing.T) {
	t.Parallel()
	proxy, through, _ := rig.Proxied(t)
	tr := rig.NewTransactor(t, through, func(c *luatx.Config) { c.CommitTimeout, c.Retention = 200*time.Millisecond, 2*time.Second })
	rig.Warm(t, tr)
	receipt := unknownCommit(t, proxy, tr)
	ctx := redistest.Soon(t)
	redistest.Eventually(t, "the receipt to expire", func() bool {
		_, err := tr.Resolve(ctx, receipt)
		if errors.Is(err, luatx.ErrExpired) {
			t.Fatal("Resolve says that a commit which took effect never will")
		}
		return errors.Is(err, luatx.ErrReceiptExpired)
	})
}

func TestResolveReturnsErrReceiptForeignAndErrReceiptInvalid(t *testing.T) {
	t.Parallel()
	proxy, through, _ := rig.Proxied(t)
	tr := rig.NewTransactor(t, through)
	rig.Warm(t, tr)
	receipt, ctx := unknownCommit(t, proxy, tr), redistest.Soon(t)
	if _, err := rig.NewTransactor(t, through).Resolve(ctx, receipt); !errors.Is(err, luatx.ErrReceiptForeign) || !strings.Contains(err.Error(), tr.Config().Namespace) {
		t.Errorf("of another namespace: %v", err)
	}
	for n := range len(receipt) {
		if _, err := tr.Resolve(ctx, receipt[:n]); !errors.Is(err, luatx.ErrReceiptInvalid) {
			t.Errorf("the first %d bytes of %d: %v", n, len(receipt), err)
		}
	}
	if result, err := tr.Resolve(ctx, receipt); err != nil || result.Outcome != luatx.Replayed {
		t.Errorf("the whole: %v, %v", result, err)
	}
}
