package stack

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/luatx/luatx/message"
)

// relayPatience is how long events may be committed in a process without a relay before that is said. A relay is
// started beside the consumers, and may be a moment late.
const relayPatience = 10 * time.Second

// relayWatch notices that nobody here publishes what is committed, which is the easiest thing to forget in the swap.
type relayWatch struct {
	attached func() bool
	logger   *slog.Logger

	mu    sync.Mutex
	since time.Time // of the first event without a relay
	said  bool
}

func (w *relayWatch) wrap(next message.ProcessFunc) message.ProcessFunc {
	return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
		outputs, err := next(ctx, msg)
		if err == nil && len(outputs) > 0 {
			w.look()
		}
		return outputs, err
	}
}

func (w *relayWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.said:
	case w.attached():
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = time.Now()
	case time.Since(w.since) >= relayPatience:
		w.said = true
		w.logger.Warn("stack: events are committed and no relay runs in this process, so they wait: run relay.New(transactor, …).Run here, or set stack.Config.RelayElsewhere where it runs in another")
	}
}
