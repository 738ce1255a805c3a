package redistest_test

import (
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
)

func TestSentinelReplacesTheMaster(t *testing.T) {
	t.Parallel()
	group := redistest.Sentinel(t)
	client := group.Client(t)
	ctx := t.Context()
	must(t, client.Set(ctx, "k", "v", 0).Err())
	if n := client.Wait(ctx, 1, 5*time.Second).Val(); n != 1 {
		t.Fatalf("%d replicas", n)
	}
	master, err := group.Master(ctx)
	must(t, err)
	if master != group.Servers[0] {
		t.Errorf("the master is %s", master.Addr())
	}
	must(t, master.Kill())
	successor, err := group.WaitMaster(ctx, master)
	must(t, err)
	if successor != group.Servers[1] {
		t.Errorf("succeeded by %s", successor.Addr())
	}
	redistest.Eventually(t, "the client writes to the successor", func() bool { return client.Set(ctx, "k", "w", 0).Err() == nil })
	if got := successor.Client(t).Get(ctx, "k").Val(); got != "w" {
		t.Errorf("the successor has %q", got)
	}
}
