package faults_test

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// TestInboxNeedsLessMemoryThanAKeyPerMessage compares it with pipeline.SetNX. The ids have 36 characters and are all in one
// shard, or spread over a hundred.
func TestInboxNeedsLessMemoryThanAKeyPerMessage(t *testing.T) {
	t.Parallel()
	ids := 20_000
	if verifying() {
		ids = 100_000
	}
	shards := func(partitions int) func(*redis.Client) func(int) error {
		return func(client *redis.Client) func(int) error {
			tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(partitions) })
			return func(n int) error {
				return assert.ErrOf(tr.Transact(t.Context(), strconv.Itoa(n), func(*luatx.Tx) error { return nil }, luatx.WithID(uuid(n))))
			}
		}
	}
	keys := func(client *redis.Client) func(int) error {
		return func(n int) error {
			return client.SetNX(t.Context(), "inbox:"+uuid(n), rand.Text(), 24*time.Hour).Err()
		}
	}
	one, hundred, keyed := weigh(t, ids, shards(1)), weigh(t, ids, shards(100)), weigh(t, ids, keys)
	t.Logf("%d ids: %.0f bytes an id in one shard, %.0f in a hundred, %.0f as a key each", ids, one, hundred, keyed)
	if max(one, hundred) > 0.7*keyed {
		t.Errorf("an id takes %.0f or %.0f bytes, a key of its own %.0f", one, hundred, keyed)
	}
}

func uuid(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", n, n) }

// weigh returns the memory that a server needs for each id, in bytes.
func weigh(t *testing.T, ids int, with func(*redis.Client) func(id int) error) float64 {
	t.Helper()
	server := redistest.Single(t, redistest.Own())
	before := memory(t, server)
	client := server.Client(t)
	mark := with(client)
	var running sync.WaitGroup
	const workers = 16
	for w := range workers {
		running.Go(func() {
			for n := w; n < ids; n += workers {
				if err := mark(n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	_ = client.Close() // its connections need memory, too
	return float64(memory(t, server)-before) / float64(ids)
}

// memory returns the memory that the server has allocated, in bytes, with a single connection.
func memory(t *testing.T, server *redistest.Server) int {
	t.Helper()
	client := server.Client(t, func(o *redis.Options) { o.PoolSize = 1 })
	defer client.Close()
	redistest.Eventually(t, "the others to leave", func() bool {
		return infoField(t, client, "connected_clients") == 1
	})
	return infoField(t, client, "used_memory")
}

// infoField reads a number from INFO.
func infoField(t *testing.T, client *redis.Client, name string) int {
	t.Helper()
	info, err := client.Info(t.Context()).Result()
	redistest.Must(t, err)
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			redistest.Must(t, err)
			return n
		}
	}
	t.Fatal("INFO does not contain " + name)
	return 0
}
