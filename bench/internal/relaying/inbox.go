package relaying

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
)

const (
	inboxIDs     = 1_000_000
	inboxAtOnce  = 500
	keptFor      = 24 * time.Hour
	inboxNames   = 36 // characters of an id
	inboxCaption = "Server memory per id, with %s ids of %d characters that are kept for 24 hours."
)

// bucketed is the note about a layout that was rejected.
const bucketed = `**Rejected: a bucketed inbox.** It would keep the digests in many small hashes of up to about 100 entries, which Redis stores as
packed lists. A prototype used 42 bytes per id, less than half of the bytes in one hash. The only benefit would be memory: the
ids of 1,000 messages per second for 24 hours take at least 7.6 GB in one hash, and would take 3.6 GB in buckets. Every bucket would
need a key, which a script must declare. A batch of 64 transactions would access up to 128 more keys. Every lookup would scan
half a list on average, which takes one to two microseconds instead of half a microsecond. The rotation of the generations is one
RENAME now. It would have to delete thousands of keys, or to set a time to live on each of them. Policies such as volatile-lru
may evict such keys, and the inbox would lose their ids silently.`

// inbox measures the memory of an id in the inbox of luatx, and as a key of its own.
func inbox(ctx context.Context, env suite.Env, b *bed, report *suite.Report) error {
	n := inboxIDs
	if env.Short {
		n /= 10
	}
	grid := suite.Grid{
		Caption: fmt.Sprintf(inboxCaption, suite.Number(float64(n)), inboxNames), Head: []string{"way", "bytes per id"},
	}
	for _, way := range []struct {
		name, figure string
		fill         func(context.Context, *bed, int, int) error
	}{
		{"luatx inbox", "inbox_bytes", fillInbox},
		{"one key per id, by SET NX with EX", "", fillKeys},
	} {
		env.Log("%d ids, %s", n, way.name)
		bytes, err := b.memory(ctx, n, way.fill)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		grid.Rows = append(grid.Rows, []string{way.name, suite.Number(bytes)})
		if way.figure != "" {
			report.Figures[way.figure] = measure.Spread{Median: bytes, Low: bytes, High: bytes}
		}
	}
	report.Grids = append(report.Grids, grid)
	return nil
}

// memory returns the memory of each of n ids. It excludes what exists without them, such as scripts and buffers.
func (b *bed) memory(ctx context.Context, n int, fill func(ctx context.Context, b *bed, from, n int) error) (float64, error) {
	if err := errors.Join(b.client.FlushAll(ctx).Err(), fill(ctx, b, 0, inboxAtOnce)); err != nil {
		return 0, err
	}
	empty, err := b.usedMemory(ctx)
	if err != nil {
		return 0, err
	}
	if err := fill(ctx, b, inboxAtOnce, n); err != nil {
		return 0, err
	}
	full, err := b.usedMemory(ctx)
	return float64(full-empty) / float64(n), err
}

// usedMemory returns the memory of the data and its indexes, without the clients' buffers.
func (b *bed) usedMemory(ctx context.Context) (int64, error) {
	info := b.client.InfoMap(ctx, "memory")
	if err := info.Err(); err != nil {
		return 0, err
	}
	used, errUsed := strconv.ParseInt(info.Item("Memory", "used_memory"), 10, 64)
	clients, errClients := strconv.ParseInt(info.Item("Memory", "mem_clients_normal"), 10, 64)
	if err := errors.Join(errUsed, errClients); err != nil {
		return 0, fmt.Errorf("INFO memory: %w", err)
	}
	return used - clients, nil
}

func idOf(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// fillInbox commits transactions, each with an id.
func fillInbox(ctx context.Context, b *bed, from, n int) error {
	tr, err := transactor(b.client, luatx.Partitions(1), quiet)
	if err != nil {
		return err
	}
	counter, err := tr.Keyspace().Key("a", "counter")
	if err != nil {
		return err
	}
	items := make([]luatx.BatchItem, 0, inboxAtOnce)
	for i := from; i < from+n; i += len(items) {
		items = items[:0]
		for j := i; j < min(i+inboxAtOnce, from+n); j++ {
			items = append(items, luatx.BatchItem{Aggregate: "a", Options: []luatx.Option{luatx.WithID(idOf(j))}, Func: func(tx *luatx.Tx) error {
				return luatx.Queued(tx.Pipeline().Incr(ctx, counter))
			}})
		}
		for _, result := range tr.TransactBatch(ctx, items) {
			if result.Err != nil {
				return result.Err
			}
			if result.Outcome != luatx.Committed {
				return fmt.Errorf("a new id was treated as a duplicate: %v", result.Outcome)
			}
		}
	}
	return nil
}

// fillKeys stores each id as a key.
func fillKeys(ctx context.Context, b *bed, from, n int) error {
	for i := from; i < from+n; i += inboxAtOnce {
		_, err := b.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for j := i; j < min(i+inboxAtOnce, from+n); j++ {
				pipe.SetNX(ctx, "bench:inbox:"+idOf(j), 1, keptFor)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
