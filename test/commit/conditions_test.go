package commit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
)

// TestConditionalWritesReturnErrNotCommitted records writes that depend on what they find. Their replies say whether
// they wrote, so none of them may look like a success before the commit.
func TestConditionalWritesReturnErrNotCommitted(t *testing.T) {
	t.Parallel()
	tr := rig.NewTransactor(t, redistest.Shared(t).Client(t))
	k := rig.Key(t, tr, "a", "k")
	stop := errors.New("nothing is to be sent")
	for name, record := range map[string]func(context.Context, redis.Pipeliner) error{
		"SET IFEQ":  func(ctx context.Context, p redis.Pipeliner) error { return p.SetIFEQ(ctx, k, "new", "old", 0).Err() },
		"SET IFNE":  func(ctx context.Context, p redis.Pipeliner) error { return p.SetIFNE(ctx, k, "new", "old", 0).Err() },
		"SET IFDEQ": func(ctx context.Context, p redis.Pipeliner) error { return p.SetIFDEQ(ctx, k, "new", 7, 0).Err() },
		"SET IFDNE": func(ctx context.Context, p redis.Pipeliner) error { return p.SetIFDNE(ctx, k, "new", 7, 0).Err() },
		"HSETEX NX": func(ctx context.Context, p redis.Pipeliner) error {
			return p.Do(ctx, "HSETEX", k, "NX", "FIELDS", 1, "f", "v").Err()
		},
		"HSETEX XX": func(ctx context.Context, p redis.Pipeliner) error {
			return p.Do(ctx, "HSETEX", k, "EX", 5, "XX", "FIELDS", 1, "f", "v").Err()
		},
		"MSETEX NX": func(ctx context.Context, p redis.Pipeliner) error {
			return p.MSetEX(ctx, redis.MSetEXArgs{Condition: redis.NX}, k, "v").Err()
		},
		"DELEX IFEQ": func(ctx context.Context, p redis.Pipeliner) error { return p.Do(ctx, "DELEX", k, "IFEQ", "v").Err() },
		"DELIFEQ":    func(ctx context.Context, p redis.Pipeliner) error { return p.Do(ctx, "DELIFEQ", k, "v").Err() },
		"EXPIRE NX":  func(ctx context.Context, p redis.Pipeliner) error { return p.ExpireNX(ctx, k, time.Hour).Err() },
		"HPEXPIRE GT": func(ctx context.Context, p redis.Pipeliner) error {
			return p.Do(ctx, "HPEXPIRE", k, 1, "GT", "FIELDS", 1, "f").Err()
		},
		"ZADD NX": func(ctx context.Context, p redis.Pipeliner) error {
			return p.ZAddNX(ctx, k, redis.Z{Member: "m"}).Err()
		},
		"GEOADD CH": func(ctx context.Context, p redis.Pipeliner) error {
			return p.Do(ctx, "GEOADD", k, "CH", 1, 2, "m").Err()
		},
		"XADD NOMKSTREAM": func(ctx context.Context, p redis.Pipeliner) error {
			return p.XAdd(ctx, &redis.XAddArgs{Stream: k, NoMkStream: true, Values: []any{"f", "v"}}).Err()
		},
		"XDELEX ACKED": func(ctx context.Context, p redis.Pipeliner) error { return p.XDelEx(ctx, k, "ACKED", "1-1").Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tr.Transact(t.Context(), "a", func(tx *luatx.Tx) error {
				if err := record(t.Context(), tx.Pipeline()); !errors.Is(err, luatx.ErrNotCommitted) {
					t.Errorf("error %v, want ErrNotCommitted", err)
				}
				return stop
			})
			if !errors.Is(err, stop) {
				t.Error(err)
			}
		})
	}
}

// TestConditionalWritesReturnTheirReplyAfterTheCommit commits a swap that finds the old value and one that does not.
func TestConditionalWritesReturnTheirReplyAfterTheCommit(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		k, free := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "free")
		client.Set(ctx, k, "old", 0)
		probe := client.SetIFEQ(ctx, k, "old", "old", 0).Err()
		if probe != nil {
			t.Skip("the server has no SET IFEQ: ", probe)
		}
		var swapped, refused *redis.StatusCmd
		var both *redis.IntCmd
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			swapped = tx.Pipeline().SetIFEQ(ctx, k, "new", "old", 0)
			refused = tx.Pipeline().SetIFEQ(ctx, k, "newer", "old", 0)
			if rig.Knows(t, client, "MSETEX") {
				both = tx.Pipeline().MSetEX(ctx, redis.MSetEXArgs{Condition: redis.NX}, k, "v", free, "v")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if swapped.Err() != nil || swapped.Val() != "OK" || !errors.Is(refused.Err(), redis.Nil) {
			t.Errorf("the first swap: %v; the second one: %v", swapped, refused)
		}
		if both != nil && (both.Err() != nil || both.Val() != 0) {
			t.Errorf("MSETEX NX of a key that exists: %v", both)
		}
		if got := client.Get(ctx, k).Val(); got != "new" {
			t.Errorf("the value is %q", got)
		}
	})
}
