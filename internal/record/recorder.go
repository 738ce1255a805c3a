// Package record records go-redis commands without sending them, and sets their results later.
package record

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

//go:generate go run ./gen

// Source creates the commands of recorders. One per process is enough. It never dials.
type Source struct {
	client   *redis.Client
	maker    *redis.Conn // creates commands, for made
	complete bool        // recorder_gen.go has every command of this go-redis
}

// NewSource returns a Source.
func NewSource() *Source {
	s := &Source{client: offline(func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("a recorder does not dial")
	})}
	s.maker = s.client.Conn()
	s.maker.AddHook(maker{})
	s.complete = reflect.TypeFor[redis.Pipeliner]().NumMethod() == pipelinerMethods
	return s
}

// errMade is the error of a command that the maker has created.
var errMade = errors.New("created, but not recorded")

// maker ends commands with errMade.
type maker struct{}

func (maker) DialHook(next redis.DialHook) redis.DialHook { return next }

func (maker) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return errMade }
}

func (maker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// offline returns a client that only uses connections of its dialer. go-redis never dials the address, but would look
// up a host name.
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

// Recorder is a redis.Pipeliner that passes each command to its owner at once, instead of sending it to a server. The
// source creates the command and keeps no reference to it. A Recorder thus needs only its own memory, and its owner may
// embed it.
//
// If the source cannot create a command, the Recorder uses a go-redis connection whose hook ends every command. This
// applies to pipelines inside the pipeline, and to commands of a later go-redis than the one that recorder_gen.go was
// generated from. Every command of go-redis is thus recorded.
type Recorder struct {
	redis.StatefulCmdable // only for commands of a later go-redis; otherwise nil

	source *Source
	owner  Owner

	mu   sync.Mutex
	cmds []redis.Cmder
	few  [4]redis.Cmder // initial storage of cmds
}

// Owner receives the commands that a Recorder records.
type Owner interface {
	// Record is called for each command, one at a time. It returns the error for the command, and whether the Recorder keeps the
	// command.
	Record(cmd redis.Cmder) (keep bool, err error)
	// Exec returns the error for a call of Exec on the recorder itself.
	Exec() error
}

// Init initializes a zero Recorder.
func (s *Source) Init(r *Recorder, owner Owner) {
	r.source, r.owner = s, owner
	r.cmds = r.few[:0]
	if !s.complete {
		r.StatefulCmdable = r.conn()
	}
}

// conn returns a connection that records all commands.
func (r *Recorder) conn() *redis.Conn {
	conn := r.source.client.Conn()
	conn.AddHook(hook{r})
	return conn
}

// made records a command that the source has created, unless go-redis has set an error.
func made[C redis.Cmder](r *Recorder, cmd C) C {
	if cmd.Err() == errMade { //nolint:errorlint // it is nobody else's
		cmd.SetErr(r.record(cmd))
	}
	return cmd
}

func (r *Recorder) record(cmd redis.Cmder) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	keep, err := r.owner.Record(cmd)
	if keep {
		r.cmds = append(r.cmds, cmd)
	}
	return err
}

// Conn returns a connection that passes its commands to run. It passes the commands of a pipeline together. Run must
// set the reply or the error of each command.
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

// withoutMulti removes the MULTI and EXEC that a TxPipeline adds to its commands.
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

// Len returns the number of recorded commands.
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

// Process records a command.
func (r *Recorder) Process(_ context.Context, cmd redis.Cmder) error {
	err := r.record(cmd)
	cmd.SetErr(err)
	return err
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

// Discard removes the recorded commands.
func (r *Recorder) Discard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cmds = nil
}

// Exec returns an error, because the commands must not be executed early.
func (r *Recorder) Exec(context.Context) ([]redis.Cmder, error) { return nil, r.owner.Exec() }

// Pipeline returns a pipeline whose commands are recorded when it is executed.
func (r *Recorder) Pipeline() redis.Pipeliner { return r.conn().Pipeline() }

// TxPipeline is like Pipeline, because the recorded commands are already a transaction.
func (r *Recorder) TxPipeline() redis.Pipeliner { return r.conn().TxPipeline() }

// Pipelined records the commands that fn queues.
func (r *Recorder) Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	return r.conn().Pipelined(ctx, fn)
}

// TxPipelined records the commands that fn queues.
func (r *Recorder) TxPipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	return r.conn().TxPipelined(ctx, fn)
}

var _ redis.Pipeliner = (*Recorder)(nil)
