package piped_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/piped"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestEachCommandHasTheErrorOfARejectedLogin(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t, redistest.Shared(t).Addr(), func(o *redis.Options) { o.Username, o.Password = "nobody", "wrong" })
	for name, pipe := range map[string]redis.Pipeliner{"pipeline": client.Pipeline(), "transaction": client.TxPipeline()} {
		pipe.Incr(t.Context(), "a")
		pipe.Incr(t.Context(), "b")
		cmds, err := piped.Exec(t.Context(), pipe)
		if err == nil || len(cmds) != 2 {
			t.Errorf("%s: %d commands, %v", name, len(cmds), err)
		}
		for _, cmd := range cmds {
			if err := cmd.Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

var errHook = errors.New("the hook failed")

// failing is a hook whose pipelines fail without an error of their commands.
type failing struct{}

func (failing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (failing) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return errHook }
}

func TestEachCommandHasTheErrorOfAHook(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	client.AddHook(failing{})
	pipe := client.Pipeline()
	first, second := pipe.Incr(t.Context(), "a"), pipe.Get(t.Context(), "b")
	_, err := piped.Exec(t.Context(), pipe)
	for _, err := range []error{err, first.Err(), second.Err()} {
		if !errors.Is(err, errHook) {
			t.Error(err)
		}
	}
}

func TestCommandsWithRepliesKeepTheirOwnErrors(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tag := "{" + redistest.Tag(t) + "}"
		pipe := client.Pipeline()
		missing, list, wrong := pipe.Get(t.Context(), tag+"missing"), pipe.RPush(t.Context(), tag+"list", 1), pipe.Incr(t.Context(), tag+"list")
		_, err := piped.Exec(t.Context(), pipe)
		if !errors.Is(err, redis.Nil) || !errors.Is(missing.Err(), redis.Nil) || list.Err() != nil || !redis.HasErrorPrefix(wrong.Err(), "WRONGTYPE") {
			t.Errorf("%v: %v, %v, %v", err, missing.Err(), list.Err(), wrong.Err())
		}
	})
}
