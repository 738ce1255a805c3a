package repair_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/repair"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const retention = 24 * time.Hour

// shop is a Transactor with its own namespace, the only shard that it writes to, and a client that damages the shard.
type shop struct {
	tr     *luatx.Transactor
	client redis.UniversalClient
	slot   int
}

func newShop(t testing.TB, client redis.UniversalClient, change ...func(*luatx.Config)) *shop {
	t.Helper()
	namespace := redistest.Namespace(t)
	cfg := luatx.Config{
		Namespace: namespace, Keyspace: luatx.Partitions(1).WithPrefix(namespace), Retention: retention,
		NoHistory: true, // which would issue commands that the tests count, hold and cut
	}
	for _, c := range change {
		c(&cfg)
	}
	tr, err := luatx.New(client, cfg)
	redistest.Must(t, err)
	return &shop{tr, client, tr.Keyspace().Slots()[0]}
}

func body(id string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/s","type":"t","data":1}`, id)
}

func (s *shop) key(name string) string { return link.Of(s.tr).Scripts.Shard(s.slot).Key(name) }

func (s *shop) emit(ctx context.Context, ids ...string) error {
	_, err := s.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		for _, id := range ids {
			if err := tx.Emit(luatx.Event{ID: id, Body: []byte(body(id))}); err != nil {
				return err
			}
		}
		return nil
	}, luatx.WithID("tx of "+ids[0]))
	return err
}

func (s *shop) settle(t testing.TB, what string, ids ...string) {
	t.Helper()
	batch := make([]shard.Settlement, len(ids))
	for i, id := range ids {
		batch[i] = shard.Settlement{ID: id, What: what, Error: "refused"}
	}
	how := shard.Settling{Attempts: 10, Base: time.Second, Cap: time.Minute, Retention: time.Hour}
	settled, err := link.Of(s.tr).Scripts.Settle(redistest.Soon(t), link.Of(s.tr).Scripts.Shard(s.slot), how, batch)
	redistest.Must(t, err)
	for i, d := range settled.Done {
		if d != what {
			t.Fatalf("%s: %s instead of %s", ids[i], d, what)
		}
	}
}

// furnish creates a shard with an event in every state (leased, pending, parked and sent) and a lane of three.
func (s *shop) furnish(t testing.TB) {
	t.Helper()
	redistest.Must(t, s.emit(redistest.Soon(t), "leased", "pending", "parked", "sent"))
	s.settle(t, "parked", "parked")
	s.settle(t, "sent", "sent")
	claim, err := link.Of(s.tr).Scripts.Claim(redistest.Soon(t), link.Of(s.tr).Scripts.Shard(s.slot), shard.Claiming{Limit: 1, Lease: time.Hour, Attempts: 10})
	redistest.Must(t, err)
	if len(claim.Events) != 1 || claim.Events[0].ID != "leased" {
		t.Fatalf("claimed %+v", claim.Events)
	}
	_, err = s.tr.Enqueue(redistest.Soon(t), "a", laned("first"), laned("second"), laned("third"))
	redistest.Must(t, err)
}

// laned is an event of the only lane.
func laned(id string) luatx.Event { return luatx.Event{ID: id, Key: "lane", Body: []byte(body(id))} }

// generation returns the meta of a generation of the inbox of an age.
type generation struct {
	age   time.Duration
	older bool // it has a predecessor
}

const (
	never        = time.Duration(math.MinInt64) // age of a generation without a mark
	identityHere = "<identity>"
)

func (s *shop) meta(g generation) string {
	start, end, older := int64(0), int64(0), 0
	if g.age != never {
		start = time.Now().Add(-g.age).UnixMilli()
		end = start + retention.Milliseconds()
	}
	if g.older {
		older = 1
	}
	return fmt.Sprintf("%013d%013d%d%013d%s", end, start, older, 0, link.Of(s.tr).Scripts.Identity())
}

func (s *shop) do(t testing.TB, args ...any) {
	t.Helper()
	redistest.Must(t, s.client.Do(redistest.Soon(t), args...).Err())
}

func newWorker(t testing.TB, tr *luatx.Transactor, cfg repair.Config) *repair.Worker {
	t.Helper()
	w, err := repair.New(tr, cfg)
	redistest.Must(t, err)
	return w
}

// named returns the findings of a listing in a short form: kind, key/id.
func named(t testing.TB, list iter.Seq2[repair.Finding, error]) []string {
	t.Helper()
	var lines []string
	for f, err := range list {
		redistest.Must(t, err)
		lines = append(lines, name(f))
	}
	slices.Sort(lines)
	return lines
}

func name(f repair.Finding) string {
	line := string(f.Kind) + " " + f.Key
	if f.ID != "" {
		line += "/" + f.ID
	}
	return line
}

// left returns the findings that Fix does not repair.
func left(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		var kind, rest string
		_, _ = fmt.Sscan(line, &kind, &rest)
		return repair.Kind(kind).Fixable()
	})
}
