package eval

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
	"github.com/redis/go-redis/v9"
)

// ErrUnknown is wrapped by the error of a call that may or may not have been executed. The caller's deadline passed
// after a request was sent and before the server replied. The request may have been the last or an earlier one.
var ErrUnknown = errors.New("the request was sent and not answered: it may have been executed, or may still be")

// ServerError is the error of a script that the server rejected or ended. A retry is useless.
type ServerError struct {
	Script string
	Err    error // the server's error
}

func (e *ServerError) Error() string { return fmt.Sprintf("script %s: %v", e.Script, e.Err) }
func (e *ServerError) Unwrap() error { return e.Err }

// Eval runs a script until the server replies or ctx ends.
func (r *Runner) Eval(ctx context.Context, script *Script, keys []string, args []any) (any, error) {
	reply, _, err := r.EvalDurably(ctx, Durability{}, script, keys, args)
	return reply, err
}

// EvalDurably is Eval with a wait after the script. It reports whether the effect has reached what d requires.
func (r *Runner) EvalDurably(ctx context.Context, d Durability, script *Script, keys []string, args []any) (reply any, replicated bool, err error) {
	c := NewCall(script, keys, args)
	c.Wait = d
	r.evalAll(ctx, []*Call{c}, alone)
	if c.Failure != nil {
		return nil, false, c.Failure
	}
	return c.reply, c.Replicated, nil
}

// EvalShared is like Eval. However, if the maximum number of round trips to the node is under way, the call shares the
// next one with other calls. It does not share its script.
func (r *Runner) EvalShared(ctx context.Context, script *Script, keys []string, args []any) (any, error) {
	c := NewCall(script, keys, args)
	c.Key, c.Load = keys[0], single{script, c.Argv}
	r.evalAll(ctx, []*Call{c}, queued)
	if c.Failure != nil {
		return nil, c.Failure
	}
	reply, _ := c.Reply()
	return reply, nil
}

// NewCall returns a call that does not share its script.
func NewCall(script *Script, keys []string, args []any) *Call {
	argv := script.Argv(len(keys), len(args))
	for _, key := range keys {
		argv = append(argv, key)
	}
	return &Call{Script: script, Argv: append(argv, args...)}
}

// Once makes one round trip with a call and returns the script's reply. The error comes from the server or the network.
func (r *Runner) Once(ctx context.Context, c *Call) (reply any, err error) {
	if r.round(ctx, []*Call{c}, alone); c.Failure != nil {
		return nil, c.Failure
	}
	return c.reply, nil
}

// Send sends calls of one script that have Loads. It returns when each call has a reply, when ctx ends, or at the time
// Until, which is the same for all calls. The calls share round trips and scripts with each other, and with concurrent
// calls of others. Their order is not defined.
//
// Send sends the tail once, after the calls in the same pipeline. The tail contains the next commands of a consumer,
// and each of them carries its own error. Calls with a tail share nothing with other calls. Send changes the slice.
func (r *Runner) Send(ctx context.Context, calls []*Call, tail ...redis.Cmder) {
	how := queued
	if len(calls) == 1 && calls[0].Alone {
		how = alone // the time would be over before other flights have waited for replicas
	}
	r.evalAll(ctx, calls, how, tail...)
}

// way determines how a round is sent.
type way int

const (
	alone  way = iota // one round trip for each request
	queued            // round trips are shared with other calls
)

// evalAll makes one round after the other with the calls that have no reply. It returns when all calls have one, when
// ctx ends, or at the time Until. The tail is sent once, in the first round. evalAll changes the slice.
func (r *Runner) evalAll(ctx context.Context, open []*Call, way way, tail ...redis.Cmder) {
	if ctx.Err() != nil {
		giveUp(ctx, open)
		return
	}
	if open = r.round(ctx, open, way, tail...); len(open) == 0 {
		return // the usual case avoids a context timer, which would double the CPU time
	}
	ctx, cancel := within(ctx, open[0].Until)
	defer cancel()
	for try := 1; len(open) > 0; try++ {
		if !r.prepare(ctx, open, try) {
			giveUp(ctx, open)
			return
		}
		open = r.round(ctx, open, way)
	}
}

// errAgain is the Failure of a call that is sent again because its script skipped its load.
var errAgain = errors.New("left to another script")

// prepare waits before the next round, and reports whether the caller still waits for the calls.
func (r *Runner) prepare(ctx context.Context, open []*Call, try int) bool {
	if ended(ctx) != nil {
		return false // a flight may still write to a call that was left in it
	}
	failed := slices.IndexFunc(open, func(c *Call) bool { return !errors.Is(c.Failure, errAgain) })
	if failed < 0 {
		return true
	}
	r.log.Debug("luatx: script retried",
		"script", open[failed].Script.Name, "try", try, "requests", len(open), "error", open[failed].Failure)
	for _, c := range open {
		if !errors.Is(c.Failure, errAgain) {
			r.reload(ctx, c.Failure)
		}
	}
	return pause(ctx, try-1)
}

// round makes one round and returns the calls without a reply.
func (r *Runner) round(ctx context.Context, open []*Call, way way, tail ...redis.Cmder) []*Call {
	for _, c := range open {
		c.Tries++
	}
	switch {
	case len(tail) > 0:
		r.pipeline(ctx, open, tail...)
	case way == queued:
		r.queue.round(ctx, open)
	default:
		r.direct(ctx, open)
	}
	return slices.DeleteFunc(open, (*Call).answered)
}

// within returns a context that also ends at until. If until is zero, the context ends only with ctx.
func within(ctx context.Context, until time.Time) (context.Context, context.CancelFunc) {
	if until.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, until)
}

// ends returns the time at which a caller gives up, and false if it never does.
func ends(ctx context.Context, until time.Time) (time.Time, bool) {
	if until.IsZero() {
		return ctx.Deadline()
	}
	return until, true
}

// giveUp sets the errors of calls whose callers have run out of time.
func giveUp(ctx context.Context, open []*Call) {
	for _, c := range open {
		err := ended(ctx)
		if c.Failure != nil && !errors.Is(c.Failure, err) {
			err = fmt.Errorf("%w; last: %w", err, c.Failure)
		}
		if c.Unanswered {
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		c.Failure = err
	}
}

// answered reports whether a call is finished after a round, and prepares it for the next round otherwise.
func (c *Call) answered() bool {
	switch {
	case c.Failure == nil && c.Load != nil && c.Load.Again(c.Reply()):
		c.Failure, c.Argv = errAgain, nil
		return false
	case c.Failure == nil:
		return true
	case notSent(c.Failure):
		return false
	case !answered(c.Failure):
		c.Unanswered, c.Alone = true, c.Alone || c.shared // another call may break the connection
		return false
	case passes(c.Failure):
		return false
	case c.shared:
		c.Alone, c.shared = true, false // the error may concern another call
		return false
	}
	c.Failure = &ServerError{c.Script.Name, c.Failure}
	return true
}

// answered reports whether an error comes from the server.
func answered(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// passes reports whether an error of the server is temporary. In that case, the server executed nothing.
func passes(err error) bool {
	server, _ := errors.AsType[redis.Error](err)
	word, _, _ := strings.Cut(server.Error(), " ")
	switch word {
	case "TRYAGAIN", "CLUSTERDOWN", "LOADING", "BUSY", "MASTERDOWN", "READONLY", "MOVED", "ASK", "NOSCRIPT":
		return true
	}
	return strings.Contains(server.Error(), "max number of clients") ||
		strings.Contains(server.Error(), " -READONLY ") // before 7.0, the error of a script's first write
}

// unsentError means that no byte of a request was sent.
type unsentError struct{ err error }

func (e unsentError) Error() string { return "not sent: " + e.err.Error() }
func (e unsentError) Unwrap() error { return e.err }

// notSent reports whether an error proves that no byte of the request was or will be sent.
func notSent(err error) bool {
	if _, unsent := errors.AsType[unsentError](err); unsent {
		return !answered(err) // a rejected SCRIPT LOAD is a reply
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

// reload makes a cluster client look up the masters again. Without it, the client keeps using a dead master for a
// minute.
func (r *Runner) reload(ctx context.Context, err error) {
	if answered(err) && !redis.HasErrorPrefix(err, "READONLY") && !redis.HasErrorPrefix(err, "CLUSTERDOWN") &&
		!redis.HasErrorPrefix(err, "MOVED") && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return
	}
	if cluster, ok := r.client.(interface{ ReloadState(ctx context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
}

// tryBackoff is the pause between attempts. A pause lasts at least half of it.
var tryBackoff = message.Backoff{Base: 2 * time.Millisecond, Max: 100 * time.Millisecond}

// pause waits before the next attempt and reports whether the caller still waits for it.
func pause(ctx context.Context, try int) bool {
	half := tryBackoff.Ceiling(try+1) / 2
	return sleep.For(ctx, half+rand.N(half)) && ended(ctx) == nil
}

// ended returns the reason why a caller no longer waits, or nil. A deadline counts even if the context's goroutine,
// which may run late, has not ended the context yet. A request that its caller left in flight at the deadline must not
// be sent again.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}
