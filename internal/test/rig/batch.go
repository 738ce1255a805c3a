package rig

import (
	"context"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
)

// Set returns a SET of k as Commit takes it.
func Set(k, v string) commit.Command {
	return commit.Command{Head: "k03", Args: []any{"SET", k, v}}
}

// Commit sends commits of one shard in one request. It returns their outcomes, the server's time, and the first error.
func Commit(ctx context.Context, tr *luatx.Transactor, home shard.Shard, batch []commit.Commit) ([]commit.Outcome, time.Time, error) {
	sent := make([]*commit.Commit, len(batch))
	for i := range batch {
		batch[i].Shard, sent[i] = home, &batch[i]
	}
	link.Of(tr).Commits.Send(ctx, time.Time{}, sent)
	var now time.Time
	outcomes := make([]commit.Outcome, len(batch))
	for i, c := range sent {
		if c.Err != nil {
			return nil, now, c.Err
		}
		outcomes[i], now = c.Outcome, c.Now
	}
	return outcomes, now, nil
}
