// Package record records go-redis commands without sending them, and fills their results in later.
package record

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Source makes recorders. One serves a whole process; it never dials.
type Source struct{ client *redis.Client }

// NewSource returns a Source.
func NewSource() *Source {
	return &Source{offline(func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("a recorder does not dial")
	})}
}

// offline returns a client that reaches nothing but what its dialer gives. The address is never dialled, but
// go-redis looks a name up.
func offline(dialer func(context.Context, string, string) (net.Conn, error)) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     "127.0.0.1:0",
		Protocol:                 2,
		DisableIdentity:          true,
		MaxRetries:               -1,
		ReadTimeout:              -1,
		WriteTimeout:             -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer:                   dialer,
	})
}

// Recorder is a redis.Pipeliner that hands each command, at the call, to a function instead of a server. It is
// a go-redis connection whose hook ends every command, so that whatever go-redis can say is recorded, in
// pipelines inside the pipeline too.
type Recorder struct {
	*redis.Conn
	record func(redis.Cmder) error
	exec   func() error

	mu   sync.Mutex
	cmds []redis.Cmder
}

// New returns a Recorder. Record is called for each command, one at a time; its error becomes the command's, and
// it says whether the command is kept. Exec answers those who call Exec on the recorder itself.
func (s *Source) New(record func(redis.Cmder) (keep bool, err error), exec func() error) *Recorder {
	r := &Recorder{exec: exec}
	r.record = func(cmd redis.Cmder) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		keep, err := record(cmd)
		if keep {
			r.cmds = append(r.cmds, cmd)
		}
		return err
	}
	r.Conn = s.client.Conn()
	r.AddHook(hook{r})
	return r
}

// Conn returns a connection whose commands are handed to run, those of a pipeline all at once. Run gives each
// command its reply or its error.
func (s *Source) Conn(run func(ctx context.Context, cmds []redis.Cmder) error) *redis.Conn {
	conn := s.client.Conn()
	conn.AddHook(runHook(run))
	return conn
}

type runHook func(ctx context.Context, cmds []redis.Cmder) error

func (runHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (run runHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return run(ctx, []redis.Cmder{cmd}) }
}

func (run runHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return run(ctx, withoutMulti(cmds)) }
}

// withoutMulti leaves out what a TxPipeline puts around its commands.
func withoutMulti(cmds []redis.Cmder) []redis.Cmder {
	if len(cmds) > 1 && cmds[0].Name() == "multi" && cmds[len(cmds)-1].Name() == "exec" {
		return cmds[1 : len(cmds)-1]
	}
	return cmds
}

// hook ends commands and pipelines in the recorder.
type hook struct{ r *Recorder }

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return h.r.record(cmd) }
}

func (h hook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		var first error
		for _, cmd := range withoutMulti(cmds) {
			if err := h.r.record(cmd); err != nil {
				cmd.SetErr(err)
				if first == nil {
					first = err
				}
			}
		}
		return first
	}
}

// Len is the number of recorded commands.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.cmds)
}

// Cmds returns the recorded commands.
func (r *Recorder) Cmds() []redis.Cmder {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.cmds)
}

// BatchProcess records commands.
func (r *Recorder) BatchProcess(ctx context.Context, cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		if err := r.Process(ctx, cmd); err != nil {
			return err
		}
	}
	return nil
}

// Discard forgets what has been recorded.
func (r *Recorder) Discard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cmds = nil
}

// Exec answers a caller who would execute the commands early.
func (r *Recorder) Exec(context.Context) ([]redis.Cmder, error) { return nil, r.exec() }

var _ redis.Pipeliner = (*Recorder)(nil)
