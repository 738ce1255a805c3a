package stack

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/luatx/luatx/message"
)

// relayPatience is how long a process may commit events without a relay before a warning. A relay is started beside the consumers
// and may be a moment late.
const relayPatience = 10 * time.Second

// relayWatch warns if this process commits events but has no relay, which is easily forgotten after a change of mode.
type relayWatch struct {
	attached func() bool
	logger   *slog.Logger

	mu    sync.Mutex
	since time.Time // when the first event was committed without a relay
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
		w.logger.Warn("stack: no relay runs in this process", "remedy", "run relay.New(transactor, …).Run, or set stack.Config.RelayElsewhere")
	}
}
