package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/sleep"
)

// restAfterDenial is how long a process waits after the server denies a heartbeat. Each denial adds an entry to the
// server's ACL LOG.
const restAfterDenial = 10 * time.Minute

// Keep keeps a process in the list until ctx ends, and then removes it. It sends a heartbeat at once and then every 10
// seconds. Each heartbeat contains the result of report. After a failed heartbeat, Keep continues. It logs one line for
// each outage. A heartbeat that is under way when ctx ends may take leaveTimeout longer, so that its outcome is known.
func (l *List) Keep(ctx context.Context, kind string, report func() Report) {
	if l == nil {
		return
	}
	id := fmt.Sprintf("%s-%s-%d-%08x", kind, host(), os.Getpid(), rand.Uint32())
	failed := false
	for wait := time.Duration(0); sleep.For(ctx, wait); {
		err := l.outlivingBeat(ctx, id, kind, report())
		if err != nil && !failed && ctx.Err() == nil {
			l.log.Warn("luatx: process registration failed", "kind", kind, "error", err)
		}
		failed = err != nil
		if wait = l.Interval - rand.N(l.Interval/10); eval.Denied(err) {
			wait = restAfterDenial
		}
	}
	if !failed { // otherwise, the list soon counts the process as dead
		_ = l.leave(context.WithoutCancel(ctx), id)
	}
}

// outlivingBeat sends a heartbeat, which outlives ctx by at most leaveTimeout.
func (l *List) outlivingBeat(ctx context.Context, id, kind string, report Report) error {
	beating, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leaveTimeout, cancel) })()
	return l.Beat(beating, id, kind, report)
}
