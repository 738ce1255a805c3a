package faults_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// TestCommitCutOffInTheAppendOnlyFileIsAppliedOnceAfterARewrite shortens the file to the middle of a command, as a full disk does.
// At the next start, the server drops that command and keeps those in front of it, without their EXEC. docs/guarantees.md
// explains why the file must be rewritten.
func TestCommitCutOffInTheAppendOnlyFileIsAppliedOnceAfterARewrite(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own(), redistest.Config("appendonly yes", "appendfsync always", "save ''"))
	client, ctx, admin := server.Client(t), redistest.Soon(t), server.Admin(t)
	tr := rig.NewTransactor(t, client)
	n, list := rig.Key(t, tr, "a", "n"), rig.Key(t, tr, "a", "list")
	commit := func() luatx.Outcome {
		result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			tx.Pipeline().Incr(ctx, n)
			tx.Pipeline().RPush(ctx, list, "first", "second")
			return nil
		}, luatx.WithID("x"))
		redistest.Must(t, err)
		return result.Outcome
	}
	restart := func() {
		redistest.Must(t, server.Kill())
		redistest.Must(t, server.Restart(ctx))
	}
	commit()
	redistest.Must(t, server.Kill())
	file := appendOnlyFile(t, server.Dir())
	info, err := os.Stat(file)
	redistest.Must(t, err)
	redistest.Must(t, os.Truncate(file, info.Size()-int64(len("*1\r\n$4\r\nEXEC\r\n")+len("second\r\n"))))
	redistest.Must(t, server.Restart(ctx))
	if outcome := commit(); outcome != luatx.Committed {
		t.Fatalf("the transaction that was cut off is %v", outcome)
	}
	redistest.Must(t, admin.BgRewriteAOF(ctx).Err())
	redistest.Eventually(t, "the file to be rewritten", func() bool {
		return admin.InfoMap(ctx, "persistence").Item("Persistence", "aof_rewrite_in_progress") == "0"
	})
	restart()
	if got := client.Get(ctx, n).Val(); got != "1" {
		t.Errorf("the counter is %s after another start", got)
	}
}

// appendOnlyFile returns the file to which a server appends.
func appendOnlyFile(t *testing.T, dir string) string {
	t.Helper()
	for _, pattern := range []string{"appendonlydir/*.incr.aof", "appendonly.aof"} { // since Redis 7.0 and before
		if found, err := filepath.Glob(filepath.Join(dir, pattern)); err == nil && len(found) == 1 {
			return found[0]
		}
	}
	t.Fatalf("no append-only file in %s", dir)
	return ""
}
