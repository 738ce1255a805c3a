package commit

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
)

// The results of the probe: the keys that the server and the user's rights allow to restore completely.
const (
	restoresStrings = "1"
	restoresAll     = "2"
)

// Probe checks which commands of the undo a server supports, and stores the result for all later commits. It returns
// the missing commands, without which the caller should not commit, and whether every key can be restored. It retries
// like Ask.
func (s *Sender) Probe(ctx context.Context, home shard.Shard, failed func(error)) (lacks []string, restores bool, err error) {
	call := eval.NewCall(s.probe, home.ProbeKeys(), nil)
	var reply any
	err = s.runner.Ask(ctx, home.Void, failed, func(ctx context.Context, _ redis.UniversalClient) (err error) {
		reply, err = s.runner.Once(ctx, call)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	rows, _ := reply.([]any)
	if len(rows) == 0 || rows[0] != restoresStrings && rows[0] != restoresAll {
		return nil, false, eval.Malformed("probe", reply)
	}
	for _, row := range rows[1:] {
		name, ok := row.(string)
		if !ok {
			return nil, false, eval.Malformed("probe", reply)
		}
		lacks = append(lacks, name)
	}
	restores = rows[0] == restoresAll
	s.stringsOnly.Store(!restores)
	return lacks, restores, nil
}
