package ways

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestEachWayWritesEverythingOnceAndLeavesNothingPending(t *testing.T) {
	t.Parallel()
	for _, tags := range []int{1, 3} {
		for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
			"server":  func(t *testing.T) redis.UniversalClient { return redistest.Shared(t).Client(t) },
			"cluster": func(t *testing.T) redis.UniversalClient { return redistest.SharedCluster(t).Client(t) },
		} {
			t.Run(fmt.Sprintf("%s, %d tags", name, tags), func(t *testing.T) {
				t.Parallel()
				client := client(t)
				cell := measure.Cell{Name: "test", Callers: 4, Payload: 300, Tags: tags, Prefix: redistest.Namespace(t)}
				for _, way := range Commit(client) {
					works(t, client, cell, way)
				}
			})
		}
	}
}

// works runs two rounds of a way and looks at what it has left.
func works(t *testing.T, client redis.UniversalClient, cell measure.Cell, way measure.Way) {
	t.Helper()
	ctx, n := redistest.Soon(t), 8*BatchSize*cell.Tags
	running, err := way.Setup(ctx, cell)
	must(t, way, err)
	used, err := running.CPU(ctx)
	must(t, way, err)
	size := max(running.Batch, 1)
	for round := range 2 {
		must(t, way, running.Prepare(ctx, n))
		var callers sync.WaitGroup
		for worker := range cell.Callers {
			callers.Go(func() {
				for i := worker * size; i < n; i += cell.Callers * size {
					assert.NoError(t, running.Op(ctx, worker, i), "%s", way.Name)
				}
			})
		}
		callers.Wait()
		for _, text := range luatx.Partitions(cell.Tags).Tags() {
			looksDone(t, client, cell, way, text, n/cell.Tags, round+1)
		}
	}
	if more, err := running.CPU(ctx); err != nil || more <= used {
		t.Errorf("%s: server CPU went from %v to %v: %v", way.Name, used, more, err)
	}
}

// looksDone checks a tag after so many rounds of so many transactions each.
func looksDone(t *testing.T, client redis.UniversalClient, cell measure.Cell, way measure.Way, text string, each, rounds int) {
	t.Helper()
	ctx, name := t.Context(), namespace(cell, slices.Index(Names(), way.Name))
	key := func(part string) string { return luatx.OwnTags().WithPrefix(name).TagKey(text, part) }
	if pending, err := client.XPending(ctx, key("in"), group).Result(); err != nil || pending.Count != 0 {
		t.Errorf("%s: %+v pending, %v", way.Name, pending, err)
	}
	assert.Equal(t, client.Get(ctx, key("counter")).Val(), strconv.Itoa(each*rounds), "%s: the counter", way.Name)
	if got := client.HGetAll(ctx, key("hash")).Val(); !maps.Equal(got, map[string]string{"a": "1", "b": "2", "c": "3"}) {
		t.Errorf("%s: hash %v", way.Name, got)
	}
	events, bodies := client.XRange(ctx, key("out"), "-", "+").Val(), []string(nil)
	for _, event := range events {
		bodies = append(bodies, event.Values["data"].(string))
	}
	shard := fmt.Sprintf("%s:{%s}:", name, slot.Text(slot.OfTag(text)))
	bodies = append(bodies, client.HVals(ctx, shard+"entries").Val()...)
	if pending := int(client.ZCard(ctx, shard+"pending").Val()); pending+len(events) != each {
		t.Errorf("%s: %d events are in the outbox, want %d", way.Name, pending+len(events), each)
	}
	marks := int(client.HLen(ctx, shard+"inbox:a").Val())
	if marks == 0 {
		left, err := redistest.Dump(ctx, client, key("ids")+":*")
		must(t, way, err)
		marks = len(left.Keys)
	}
	if marks < each*rounds || marks > each*rounds+5 { // luatx keeps what the inbox is beside them
		t.Errorf("%s: the inbox has %d ids, want %d", way.Name, marks, each*rounds)
	}
	for _, body := range bodies {
		if !strings.Contains(body, strings.Repeat("x", cell.Payload)) {
			t.Errorf("%s: event %.20s", way.Name, body)
		}
	}
}

func must(t *testing.T, way measure.Way, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", way.Name, err)
	}
}
