package work

import (
	"context"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/trigger"
)

// fieldSubject is the field of a signal that names its branch.
const fieldSubject = "subject"

// signals are the triggers of a process: one for the signals of each branch. No inbox knows their entries: an entry has its
// effect by the commit that acknowledges it.
type signals struct {
	*process
	engine *message.Engine
}

func newSignals(p *process) (*signals, error) {
	engine, err := p.engine(luatx.Middleware(p.tr), map[string]message.Handler{
		"signal": message.NewHandler(p.signal, message.Named(trigger.TypeStream)),
	})
	return &signals{p, engine}, err
}

// run waits for the servers where they are out of order, and then runs the trigger of a branch until ctx ends.
func (s *signals) run(ctx context.Context, b ground.Branch) {
	s.check(s.insist(ctx, func() error {
		return trigger.New(trigger.Config{
			Function: "signal", Run: s.handle, Connector: trigger.Connector{Client: s.client}, Mode: trigger.ModeStream,
			Stream: b.Signals(), Group: ground.Group, BlockTimeout: blockTimeout, ClaimInterval: claimInterval, MaxIdleTime: ground.MaxIdle,
			Retry:       trigger.Retry{Entry: message.Backoff{Base: 10 * time.Millisecond, Max: 200 * time.Millisecond}},
			Concurrency: 4, MaxDeliveries: -1, ShutdownTimeout: 2 * time.Second, Logger: s.log,
		}).Run(ctx)
	}))
}

func (s *signals) handle(ctx context.Context, raw *message.RawMessage) error {
	_, err := s.engine.Process(ctx, raw)
	return err
}

func (p *process) signal(ctx context.Context, msg *message.TypedMessage[trigger.Payload]) ([]*message.Message, error) {
	return nil, p.counted(ctx, msg.Data.Attributes[fieldSubject], msg.ID(), ground.Branch.Signalled)
}
