// Package piped runs pipelines whose commands all have errors of their own.
package piped

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Exec runs a pipeline and returns its commands and its error, like redis.Pipeliner.Exec. If the pipeline fails before a command
// has a reply, each command has the error. go-redis leaves the commands without an error if the server rejects the login of a new
// connection, or if a hook fails, so that unsent commands look like successful ones.
func Exec(ctx context.Context, pipe redis.Pipeliner) ([]redis.Cmder, error) {
	cmds, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		return cmds, err
	}
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return cmds, err
}
