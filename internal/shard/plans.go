package shard

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// keyPlans is the key of the list of compiled commit scripts. Only the first shard of a keyspace has it.
const keyPlans = "plans" // hash: in the first shard: SHA-1 of a compiled script → SHA-1 of its variant for batches, and a description of its transactions. Fields that begin with hits: and left: count the transactions that the script has decided and left to commit.lua. The hash expires a week after it was created

// plansKept is the lifetime of a list of plans. It bounds the list, because each change of the configuration adds other
// scripts.
const plansKept = 7 * 24 * time.Hour

// Plan is a plan of commits that Transactors have compiled, with the number of times they used its scripts.
type Plan struct {
	Alone, Batch string // SHA-1s of its scripts, for one transaction and for several
	Does         string // a description of its transactions
	Hits, Left   int64  // transactions that the scripts have decided, and those that they have passed to the general one
}

// NotePlan adds a plan to the list. If the list contains the plan, NotePlan adds its hits.
func (s *Scripts) NotePlan(ctx context.Context, shard Shard, p Plan) error {
	key := shard.Key(keyPlans)
	begins, err := s.client.HSetNX(ctx, key, "since", time.Now().Format(time.RFC3339)).Result()
	if err != nil {
		return err
	}
	_, err = s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		if begins {
			pipe.PExpireAt(ctx, key, time.Now().Add(plansKept))
		}
		pipe.HSet(ctx, key, p.Alone, p.Batch+" "+p.Does)
		pipe.HIncrBy(ctx, key, "hits:"+p.Alone, p.Hits)
		pipe.HIncrBy(ctx, key, "left:"+p.Alone, p.Left)
		return nil
	})
	return err
}

// Plans returns the list, sorted by use, with the most used plan first.
func (s *Scripts) Plans(ctx context.Context, shard Shard) ([]Plan, error) {
	fields, err := s.client.HGetAll(ctx, shard.Key(keyPlans)).Result()
	if err != nil {
		return nil, err
	}
	var list []Plan
	for name, value := range fields {
		batch, does, plan := strings.Cut(value, " ")
		if !plan { // since, hits: or left:
			continue
		}
		p := Plan{Alone: name, Batch: batch, Does: does}
		p.Hits, _ = strconv.ParseInt(fields["hits:"+name], 10, 64)
		p.Left, _ = strconv.ParseInt(fields["left:"+name], 10, 64)
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Plan) int { return cmp.Or(cmp.Compare(b.Hits, a.Hits), cmp.Compare(a.Alone, b.Alone)) })
	return list, nil
}
