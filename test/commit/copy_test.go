package commit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
)

// TestCopyCommitsAsTheRefusalOfItsDatabaseSays records COPY as its typed method sends it, and then as the error says.
func TestCopyCommitsAsTheRefusalOfItsDatabaseSays(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := rig.NewTransactor(t, client), redistest.Soon(t)
		source, destination := rig.Key(t, tr, "a", "source"), rig.Key(t, tr, "a", "destination")
		if err := client.MSet(ctx, source, "new", destination, "old").Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.Do(ctx, "COPY", source, source+"-copy").Err(); err != nil && strings.Contains(err.Error(), "unknown command") {
			t.Skip("COPY needs Redis 6.2")
		}
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			return luatx.Queued(tx.Pipeline().Copy(ctx, source, destination, 0, true))
		})
		if !errors.Is(err, luatx.ErrCommandRefused) || !strings.Contains(err.Error(), `Do(ctx, "COPY", source, destination)`) {
			t.Fatalf("Copy with a database: %v", err)
		}
		var copied *redis.Cmd
		_, err = tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			copied = tx.Pipeline().Do(ctx, "COPY", source, destination, "REPLACE")
			return luatx.Queued(copied)
		})
		if n, replyErr := copied.Int(); err != nil || n != 1 || replyErr != nil {
			t.Errorf("COPY without a database: %v, reply %d, %v", err, n, replyErr)
		}
		if got := client.Get(ctx, destination).Val(); got != "new" {
			t.Errorf("the destination holds %q", got)
		}
	})
}
