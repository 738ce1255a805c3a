package script

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// What the probe says of the server and the user: which keys can be restored whole.
const (
	restoresStrings = "1"
	restoresAll     = "2"
)

// Probe asks a server what the undo may do there, and keeps the answer for every commit after it. It returns the
// commands that the undo lacks, without which nothing should be committed, and whether it can restore every key. It
// tries again as Ask does.
func (s *Set) Probe(ctx context.Context, shard Shard, failed func(error)) (lacks []string, restores bool, err error) {
	keys := shard.keys(keyVoid, keyInboxA)
	r := newRequest(&s.probe, len(keys), 0)
	for _, key := range keys {
		r.argv = append(r.argv, key)
	}
	err = s.Ask(ctx, shard, failed, func(ctx context.Context, _ redis.UniversalClient) error {
		s.round(ctx, []*request{&r}, alone)
		return r.err
	})
	if err != nil {
		return nil, false, err
	}
	reply := r.flight.call.reply
	rows, _ := reply.([]any)
	if len(rows) == 0 || rows[0] != restoresStrings && rows[0] != restoresAll {
		return nil, false, malformed("probe", reply)
	}
	for _, row := range rows[1:] {
		name, ok := row.(string)
		if !ok {
			return nil, false, malformed("probe", reply)
		}
		lacks = append(lacks, name)
	}
	restores = rows[0] == restoresAll
	s.stringsOnly.Store(!restores)
	return lacks, restores, nil
}
