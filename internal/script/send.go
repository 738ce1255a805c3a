package script

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
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

// request is one call of a script, sent until it is answered. The script must bear being run twice with the same
// arguments: that is what its tokens, leases and ids are for. Its caller alone changes it; what others read while
// it travels (script, argv, keys, part, size, alone) stands still then.
type request struct {
	script *source
	argv   []any // EVALSHA, its hash, the number of keys, the keys, the arguments; of a commit: see lay
	keys   int
	part   part // of a commit
	size   int  // see seal

	until time.Time // when its caller gives up, where that is not his context's to say

	durability Durability // what it waits for; the same for all that share a round trip

	err        error // of the last round; nil: answered
	alone      bool  // shares a round trip with no other request
	shared     bool  // the last round trip, with other requests
	replicated bool
	unanswered bool // a copy of an earlier request may still arrive
	tries      uint16
	batch      uint16 // how many commits shared the last script

	flight flight
}

// firstKey is where the first key of an EVALSHA stands.
const firstKey = 3

func newRequest(script *source, keys, args int) request {
	argv := make([]any, 0, firstKey+keys+args)
	return request{script: script, argv: append(argv, "evalsha", script.argument, keys), keys: keys}
}

// eval runs a script until it is answered or ctx ends.
func (s *Set) eval(ctx context.Context, script *source, keys []string, args []any) (any, error) {
	reply, _, err := s.evalDurably(ctx, Durability{}, script, keys, args)
	return reply, err
}

// evalDurably is eval, which waits behind the script, and reports whether its effect is where it is to be.
func (s *Set) evalDurably(ctx context.Context, d Durability, script *source, keys []string, args []any) (reply any, replicated bool, err error) {
	r := newRequest(script, len(keys), len(args))
	r.durability = d
	for _, key := range keys {
		r.argv = append(r.argv, key)
	}
	r.argv = append(r.argv, args...)
	s.evalAll(ctx, []*request{&r}, alone)
	if r.err != nil {
		return nil, false, r.err
	}
	return r.flight.call.reply, r.replicated, nil
}

// way is how a round goes.
type way int

const (
	alone  way = iota // a round trip for each request
	queued            // shared with others
)

// evalAll makes one round after the other, with what is left to be answered, until nothing is, ctx ends, or the callers'
// time is over, which is the same for all. The tail goes out once, in the first. It changes the slice.
func (s *Set) evalAll(ctx context.Context, open []*request, way way, tail ...redis.Cmder) {
	if ctx.Err() != nil {
		giveUp(ctx, open)
		return
	}
	if open = s.round(ctx, open, way, tail...); len(open) == 0 {
		return // as nearly always: without the timer of a context, which costs as much as all the rest here
	}
	ctx, cancel := within(ctx, open[0].until)
	defer cancel()
	for try := 1; len(open) > 0; try++ {
		last := open[0]
		s.log.Debug("luatx: script not answered, trying again",
			"script", last.script.name, "try", try, "requests", len(open), "error", last.err)
		for _, r := range open {
			s.reload(ctx, r.err)
		}
		if !pause(ctx, try-1) {
			giveUp(ctx, open)
			return
		}
		open = s.round(ctx, open, way)
	}
}

// round makes one round, and returns what is left to be answered.
func (s *Set) round(ctx context.Context, open []*request, way way, tail ...redis.Cmder) []*request {
	for _, r := range open {
		r.tries++
	}
	switch {
	case len(tail) > 0:
		s.pipeline(ctx, open, tail...)
	case way == queued:
		s.queue.round(ctx, open)
	default:
		s.direct(ctx, open)
	}
	return slices.DeleteFunc(open, (*request).settled)
}

// within is a context that ends at a time besides, unless that is zero.
func within(ctx context.Context, until time.Time) (context.Context, context.CancelFunc) {
	if until.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, until)
}

// ends is when a caller gives up; false: never.
func ends(ctx context.Context, until time.Time) (time.Time, bool) {
	if until.IsZero() {
		return ctx.Deadline()
	}
	return until, true
}

// giveUp ends the requests of a caller whose time is over.
func giveUp(ctx context.Context, open []*request) {
	for _, r := range open {
		err := ended(ctx)
		if r.err != nil && !errors.Is(r.err, err) {
			err = fmt.Errorf("%w; last: %w", err, r.err)
		}
		if r.unanswered {
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		r.err = err
	}
}

// settled reports whether there is nothing left to do for a request after a round, and says what the next one is
// to be like.
func (r *request) settled() bool {
	switch {
	case r.err == nil:
		return true
	case notSent(r.err):
		return false
	case !answered(r.err):
		r.unanswered, r.alone = true, r.alone || r.shared // one of the others may be what breaks the connection
		return false
	case passes(r.err):
		return false
	case r.shared:
		r.alone, r.shared = true, false // the error may be about one of the others
		return false
	}
	r.err = &ServerError{r.script.name, r.err}
	return true
}

// answered reports whether an error is the server's own.
func answered(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// passes reports whether a server's error goes away by itself; nothing was executed then.
func passes(err error) bool {
	server, _ := errors.AsType[redis.Error](err)
	word, _, _ := strings.Cut(server.Error(), " ")
	switch word {
	case "TRYAGAIN", "CLUSTERDOWN", "LOADING", "BUSY", "MASTERDOWN", "READONLY", "MOVED", "ASK", "NOSCRIPT":
		return true
	}
	return strings.Contains(server.Error(), "max number of clients") ||
		strings.Contains(server.Error(), " -READONLY ") // before 7.0, of a script's first write
}

// unsentError says that no byte of a request left.
type unsentError struct{ err error }

func (e unsentError) Error() string { return "not sent: " + e.err.Error() }
func (e unsentError) Unwrap() error { return e.err }

// notSent reports whether an error shows that no byte of the request left, and that none will.
func notSent(err error) bool {
	if _, unsent := errors.AsType[unsentError](err); unsent {
		return !answered(err) // a script that may not be loaded is an answer
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

// reload makes a cluster's client look for the masters again: by itself it stays with a dead one for a minute.
func (s *Set) reload(ctx context.Context, err error) {
	if answered(err) && !redis.HasErrorPrefix(err, "READONLY") && !redis.HasErrorPrefix(err, "CLUSTERDOWN") &&
		!redis.HasErrorPrefix(err, "MOVED") && !redis.HasErrorPrefix(err, "NOSCRIPT") {
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

// pause waits before the next try and reports whether the caller still waits for it.
func pause(ctx context.Context, try int) bool {
	d := min(firstPause<<min(try, 10), lastPause)
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ended(ctx) == nil
	}
}

// ended returns why a caller no longer waits, or nil. A context ends in a goroutine of its own, which may run late: its
// deadline counts before that. A request that its caller left in flight at the deadline must not be sent again.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}
