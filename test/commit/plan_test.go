package commit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
)

// TestMoreThanAByteCounts holds that what a plan counts in more than one byte is read so: a transaction with hundreds of
// guards, events and commands, and thousands of arguments, is whole, and its neighbours in the script are found behind it.
func TestMoreThanAByteCounts(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		const many = 300
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		n, list, missing := rig.Key(t, tr, "a", "n"), rig.Key(t, tr, "a", "list"), rig.Key(t, tr, "a", "missing")
		tx := func(name string) commit.Commit {
			return commit.Commit{
				Digest: fmt.Sprintf("%-16s", name), Token: fmt.Sprintf("%-10s", name), NotAfter: time.Now().Add(time.Minute),
				Keys: []string{n, list, missing},
			}
		}
		unset := commit.Guard{Order: 'o', Args: []any{"GET", missing}}
		reads, err := link.Of(tr).Commits.Read(ctx, shardOf(tr), []string{missing}, []commit.Guard{unset}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		unset.Digest = reads[0].Digest
		large, changed, wide, last := tx("large"), tx("changed"), tx("wide"), tx("last")
		for i := range many {
			large.Guards = append(large.Guards, unset)
			large.Events = append(large.Events, shard.Event{ID: fmt.Sprint(i), Body: []byte("{}")})
			large.Commands = append(large.Commands, commit.Command{Head: "i02", Args: []any{"INCR", n}})
		}
		changed.Guards = append(changed.Guards, large.Guards...)
		changed.Guards[many-1].Args = []any{"GET", n}
		values := make([]any, 4000)
		for i := range values {
			values[i] = i
		}
		wide.Commands = []commit.Command{{Head: "r0", Args: append([]any{"RPUSH", list}, values...)}, rig.Set(n+"x", "v")}
		wide.Keys = append(wide.Keys, n+"x")
		last.Commands = []commit.Command{{Head: "r03", Args: []any{"RPUSH", list, "last"}}}
		outcomes, _, err := rig.Commit(ctx, tr, shardOf(tr), []commit.Commit{large, changed, wide, last})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []commit.State{commit.Committed, commit.Conflict, commit.Committed, commit.Committed} {
			if outcomes[i].State != want {
				t.Errorf("transaction %d: %.200v, want %s", i, outcomes[i], want)
			}
		}
		if replies := outcomes[0].Replies; len(replies) != many || replies[many-1] != int64(many) {
			t.Errorf("the replies: %.200v", replies)
		}
		if got := client.Get(ctx, n).Val(); got != fmt.Sprint(many) {
			t.Errorf("%s commands ran, want %d", got, many)
		}
		if got := client.HLen(ctx, shardOf(tr).Key("entries")).Val(); got != many {
			t.Errorf("%d events came, want %d", got, many)
		}
		if got := client.LLen(ctx, list).Val(); got != int64(len(values))+1 || client.LIndex(ctx, list, -1).Val() != "last" {
			t.Errorf("%d values were pushed", got)
		}
	})
}
