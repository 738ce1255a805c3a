package luatx_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/redistest"
	"github.com/luatx/luatx/internal/respproxy"
)

// TestResolve holds that a receipt tells what became of a commit which nobody answered: in; or not, and never.
func TestResolve(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"executed": true, "still on its way": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through, past := proxied(t)
			ctx := redistest.Soon(t)
			tr := newTransactor(t, through)
			n := key(t, tr, "a", "n")
			warm(t, tr)
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
			before := executed(t, past)
			hold.Release()
			if !arrives {
				redistest.Eventually(t, "the held commit to arrive", func() bool { return executed(t, past) > before })
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

func TestResolveRefusesWhatIsNoReceipt(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := newTransactor(t, client)
	for _, receipt := range []luatx.Receipt{"", "1-2-3", "1-99999-00112233445566778899aabbccddeeff-00112233445566778899-1", "1-1-zz-00-1", "2-1-00112233445566778899aabbccddeeff-00112233445566778899-1"} {
		if _, err := tr.Resolve(t.Context(), receipt); err == nil || !strings.Contains(err.Error(), "not a receipt") {
			t.Errorf("%q: %v", receipt, err)
		}
	}
}
