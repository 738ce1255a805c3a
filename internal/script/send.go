package script

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrUnknown is wrapped by the error of a call that may or may not have been executed: the caller's deadline
// passed while its last request, or an earlier one, had not been answered.
var ErrUnknown = errors.New("the request was sent and not answered: it may have been executed, or may still be")

// ServerError is a script that the server refused or ended, with nothing left to wait for.
type ServerError struct {
	Script string
	Err    error // the server's error
}

func (e *ServerError) Error() string { return fmt.Sprintf("script %s: %v", e.Script, e.Err) }
func (e *ServerError) Unwrap() error { return e.Err }

// once is a command that go-redis sends once: a lost reply must not become a second execution that nobody
// counted. Redirections of a cluster are still followed.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// firstKey is where the first key of an EVALSHA stands.
const firstKey = 3

// eval runs a script until it is answered or ctx ends. The script must bear being run twice with the same
// arguments: that is what its tokens, leases and ids are for.
//
// The bool says whether an earlier request went unanswered: a copy of it may still arrive.
func (s *Set) eval(ctx context.Context, script source, keys []string, args []any) (any, bool, error) {
	argv := make([]any, 0, firstKey+len(keys)+len(args))
	argv = append(argv, "evalsha", script.sha, len(keys))
	for _, key := range keys {
		argv = append(argv, key)
	}
	argv = append(argv, args...)

	unanswered := false
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return nil, unanswered, ended(err, unanswered)
		}
		cmd := once{redis.NewCmd(ctx, argv...)}
		cmd.SetFirstKeyPos(firstKey)
		err := s.client.Process(ctx, cmd)
		if err == nil || errors.Is(err, redis.Nil) {
			return cmd.Val(), unanswered, nil
		}
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			if err = s.load(ctx, script, keys[0]); err == nil {
				continue
			}
		} else if !answered(err) && !notSent(err) {
			unanswered = true
		}
		if answered(err) && !passes(err.Error()) {
			return nil, unanswered, &ServerError{script.name, err}
		}
		s.log.Debug("luatx: script not answered, trying again", "script", script.name, "try", try+1, "error", err)
		s.reload(ctx, err)
		if !pause(ctx, try) {
			return nil, unanswered, ended(fmt.Errorf("%w; last: %w", context.Cause(ctx), err), unanswered)
		}
	}
}

func ended(err error, unanswered bool) error {
	if unanswered {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// answered reports whether an error is the server's own.
func answered(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// passes reports whether a server's error goes away by itself; nothing was executed then.
func passes(text string) bool {
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "TRYAGAIN", "CLUSTERDOWN", "LOADING", "BUSY", "MASTERDOWN", "READONLY", "MOVED", "ASK":
		return true
	}
	return strings.Contains(text, "max number of clients")
}

// notSent reports whether an error shows that no byte of the request left.
func notSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

// load puts a script where the key lives.
func (s *Set) load(ctx context.Context, script source, key string) error {
	var err error
	if cluster, ok := s.client.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}); ok {
		var master *redis.Client
		if master, err = cluster.MasterForKey(ctx, key); err == nil {
			err = master.ScriptLoad(ctx, script.text).Err()
		}
	} else {
		err = s.client.ScriptLoad(ctx, script.text).Err()
	}
	return err
}

// reload makes a cluster's client look for the masters again: by itself it stays with a dead one for a minute.
func (s *Set) reload(ctx context.Context, err error) {
	if answered(err) && !redis.HasErrorPrefix(err, "READONLY") && !redis.HasErrorPrefix(err, "CLUSTERDOWN") {
		return
	}
	if cluster, ok := s.client.(interface{ ReloadState(ctx context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
}

// The pauses between tries: 2 ms, doubled up to 100 ms, with jitter.
const (
	firstPause = 2 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// pause waits before the next try and reports whether there is to be one.
func pause(ctx context.Context, try int) bool {
	d := min(firstPause<<min(try, 10), lastPause)
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
