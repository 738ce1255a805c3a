package commit_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// TestContexts holds what adapters find in a context: the transaction, else the pipeline, else their own client.
func TestContexts(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	plain := redistest.Soon(t)
	if pipe, ok := luatx.PipelineFromContext(plain); ok || pipe != nil {
		t.Errorf("a plain context carries %v", pipe)
	}
	if got := luatx.CmdableFromContext(plain, client); got != redis.Cmdable(client) {
		t.Errorf("a plain context leads to %v", got)
	}
	pipe := client.TxPipeline()
	carrying := luatx.ContextWithPipeline(plain, pipe)
	if got, ok := luatx.PipelineFromContext(carrying); !ok || got != pipe {
		t.Errorf("the pipeline came back as %v, %t", got, ok)
	}
	if got := luatx.CmdableFromContext(carrying, client); got != redis.Cmdable(pipe) {
		t.Errorf("with a pipeline adapters get %v", got)
	}
	if _, ok := luatx.TxFromContext(carrying); ok {
		t.Error("a pipeline passes for a transaction")
	}
	inner := client.TxPipeline()
	if got, _ := luatx.PipelineFromContext(luatx.ContextWithPipeline(carrying, inner)); got != inner {
		t.Error("the outer pipeline hides the inner one")
	}

	tr := rig.NewTransactor(t, client)
	if _, err := tr.Transact(plain, "a", func(tx *luatx.Tx) error {
		ctx := tx.Context(carrying)
		if got, ok := luatx.TxFromContext(ctx); !ok || got != tx {
			t.Errorf("the transaction came back as %v, %t", got, ok)
		}
		if got, ok := luatx.PipelineFromContext(ctx); !ok || got != tx.Pipeline() {
			t.Errorf("the transaction's pipeline came back as %v, %t", got, ok)
		}
		return luatx.CmdableFromContext(ctx, client).Set(ctx, rig.Key(t, tr, "a", "k"), "v", 0).Err()
	}); err != nil {
		t.Fatal(err)
	}
	if pipe.Len() != 0 || client.Get(plain, rig.Key(t, tr, "a", "k")).Val() != "v" {
		t.Errorf("the write went to the pipeline around: %d commands on it", pipe.Len())
	}
}
