package faults_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
)

// touch commits one command to an aggregate.
func touch(ctx context.Context, tr *luatx.Transactor, aggregate string) error {
	return assert.ErrOf(tr.Transact(ctx, aggregate, rig.Incr))
}

// late is the delay after its deadline that a call may have on a loaded machine.
const late = 2 * time.Second

func TestColdTransactorReturnsAtEachCallersDeadline(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	proxy.On(func([]string) respproxy.Action { return respproxy.DropRequest() })
	// The read timeout is longer than the test, so that only the callers' contexts can end the calls.
	client := redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 20*time.Second, -1 })
	calls := map[string]func(context.Context, *luatx.Transactor) error{
		"Transact": func(ctx context.Context, tr *luatx.Transactor) error { return touch(ctx, tr, "a") },
		"Check":    func(ctx context.Context, tr *luatx.Transactor) error { return tr.Check(ctx) },
		"Enqueue": func(ctx context.Context, tr *luatx.Transactor) error {
			return assert.ErrOf(tr.Enqueue(ctx, "a", luatx.Event{ID: "1", Body: []byte("{}")}))
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := rig.NewUnchecked(t, client)
			var running sync.WaitGroup
			for _, patience := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
				running.Go(func() {
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					err := call(ctx, tr)
					if took := time.Since(began); took < patience || took > patience+late {
						t.Errorf("a caller with %v returned after %v", patience, took)
					}
					if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, luatx.ErrOutcomeUnknown) {
						t.Errorf("a caller with %v got %v", patience, err)
					}
				})
			}
			running.Wait()
		})
	}
}

func TestCheckIsSharedByTheCallersThatWaitForIt(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	hold := respproxy.NewHold()
	var checks atomic.Int64
	proxy.On(func(cmd []string) respproxy.Action {
		if !respproxy.Command("TIME")(cmd) {
			return respproxy.Pass()
		}
		checks.Add(1)
		return respproxy.HoldBy(hold)
	})
	tr := rig.NewUnchecked(t, redistest.Client(t, proxy.Addr()))
	ctx := redistest.Soon(t)
	impatient, giveUp := context.WithCancel(ctx)
	first := make(chan error)
	go func() { first <- touch(impatient, tr, "a") }()
	redistest.Must(t, hold.Wait(ctx))
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			rig.NoError(t, touch(ctx, tr, "a"))
		})
	}
	giveUp()
	assert.Is(t, <-first, context.Canceled, "the caller that gave up")
	hold.Release()
	running.Wait()
	if n := checks.Load(); n > 2 { // two, if the first caller left before any other arrived
		t.Errorf("%d checks for 9 callers", n)
	}
}

func TestColdTransactorWaitsForAServerThatIsNotReady(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]respproxy.Action{"cut": respproxy.CutRequest(), "reply lost": respproxy.CutReply()} {
		for _, command := range []string{"TIME", "INFO", "EVALSHA"} {
			t.Run(name+" "+command, func(t *testing.T) {
				t.Parallel()
				proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
				var failures atomic.Int64
				proxy.On(func(cmd []string) respproxy.Action {
					if strings.EqualFold(cmd[0], command) && failures.Add(1) <= 3 {
						return failure
					}
					return respproxy.Pass()
				})
				tr := rig.NewUnchecked(t, redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.MaxRetries = -1 }))
				rig.NoError(t, touch(redistest.Soon(t), tr, "a"))
				if failures.Load() < 3 {
					t.Errorf("%d failures", failures.Load())
				}
			})
		}
	}
}

func TestColdTransactorWaitsForAServerThatStarts(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	tr := rig.NewUnchecked(t, server.Client(t, func(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 }))
	ctx := redistest.Soon(t)
	redistest.Must(t, server.Kill())
	done := make(chan error)
	go func() { done <- touch(ctx, tr, "a") }()
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := touch(short, tr, "a"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("beside a server that is down: %v", err)
	}
	redistest.Must(t, server.Restart(ctx))
	rig.NoError(t, <-done)
}

func TestColdTransactorCommitsOnAHealthySlotWhileAnotherMasterIsDown(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t, redistest.Config("cluster-require-full-coverage no", "cluster-replica-no-failover yes"))
	ctx := redistest.Soon(t)
	dead, err := cluster.NodeForSlot(ctx, slot.OfTag("dead"))
	redistest.Must(t, err)
	var healthy string
	for _, tag := range []string{"a", "b", "c", "d", "e"} {
		node, err := cluster.NodeForSlot(ctx, slot.OfTag(tag))
		redistest.Must(t, err)
		if node != dead {
			healthy = tag
		}
	}
	redistest.Must(t, dead.Kill())
	cold := func() *luatx.Transactor {
		return rig.NewUnchecked(t, cluster.Client(t, func(o *redis.ClusterOptions) { o.DialerRetries = 1 }))
	}
	for range 4 { // the client chooses nodes at random
		tr := cold()
		patient, cancel := context.WithTimeout(ctx, 2*late)
		var waiting sync.WaitGroup
		waiting.Go(func() { // no other call waits for this one
			if err := touch(patient, tr, "dead"); err == nil {
				t.Error("committed on a master that is down")
			}
		})
		began := time.Now()
		err := touch(ctx, tr, healthy)
		if took := time.Since(began); err != nil || took > late {
			t.Errorf("a commit on a healthy slot took %v: %v", took, err)
		}
		cancel()
		waiting.Wait()

		short, cancel := context.WithTimeout(ctx, late)
		results := cold().TransactBatch(short, []luatx.BatchItem{{Aggregate: "dead", Func: rig.Incr}, {Aggregate: healthy, Func: rig.Incr}})
		if results[0].Err == nil || results[1].Err != nil {
			t.Errorf("in a batch, on a master that is down: %v; on a healthy one: %v", results[0].Err, results[1].Err)
		}
		cancel()
	}
}
