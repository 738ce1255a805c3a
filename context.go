package luatx

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

type (
	txKey       struct{}
	pipelineKey struct{}
)

// TxFromContext returns the transaction that a handler runs in.
func TxFromContext(ctx context.Context) (*Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*Tx)
	return tx, ok
}

// ContextWithPipeline returns a context that carries a pipeline: adapters queue their commands on it.
func ContextWithPipeline(ctx context.Context, pipe redis.Pipeliner) context.Context {
	return context.WithValue(ctx, pipelineKey{}, pipe)
}

// PipelineFromContext returns what a handler's commands are recorded on: the transaction's pipeline, or the one
// that ContextWithPipeline put there.
func PipelineFromContext(ctx context.Context) (redis.Pipeliner, bool) {
	if tx, ok := TxFromContext(ctx); ok {
		return tx.Pipeline(), true
	}
	pipe, ok := ctx.Value(pipelineKey{}).(redis.Pipeliner)
	return pipe, ok
}

// CmdableFromContext returns what an adapter issues its commands on: inside a transaction or a pipeline they
// are recorded, elsewhere fallback executes them.
func CmdableFromContext(ctx context.Context, fallback redis.Cmdable) redis.Cmdable {
	if pipe, ok := PipelineFromContext(ctx); ok {
		return pipe
	}
	return fallback
}

// Queued returns the error of a command whose reply the caller does not need: a command that was recorded and
// has no reply yet is none. Counters are the common case:
//
//	return luatx.Queued(cmdable.HIncrBy(ctx, key, "spent", pence))
func Queued(cmd redis.Cmder) error {
	if err := cmd.Err(); !errors.Is(err, ErrNotCommitted) {
		return err
	}
	return nil
}
