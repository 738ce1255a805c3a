package work

import (
	"context"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/trigger"
)

// fieldSubject is the field of a signal that names its branch.
const fieldSubject = "subject"

// signals runs the trigger of a branch's signals until ctx ends, after it has waited for the servers if they are
// unavailable. There is no inbox: an entry is applied once because the commit of its effect acknowledges it.
func (p *process) signals(ctx context.Context, engine *message.Engine, b ground.Branch) {
	handle := func(ctx context.Context, raw *message.RawMessage) error {
		_, err := engine.Process(ctx, raw)
		return err
	}
	p.check(p.insist(ctx, func() error {
		return trigger.New(trigger.Config{
			Function: "signal", Run: handle, Connector: trigger.Connector{Client: p.client}, Mode: trigger.ModeStream,
			Stream: b.Signals, Group: ground.Group, BlockTimeout: blockTimeout, ClaimInterval: claimInterval, MaxIdleTime: ground.MaxIdle,
			Retry:       trigger.Retry{Entry: message.Backoff{Base: 10 * time.Millisecond, Max: 200 * time.Millisecond}},
			Concurrency: 4, MaxDeliveries: -1, ShutdownTimeout: 2 * time.Second, Logger: p.log,
		}).Run(ctx)
	}))
}

func (p *process) signal(ctx context.Context, msg *message.TypedMessage[trigger.Payload]) ([]*message.Message, error) {
	return nil, p.counted(ctx, msg.Data.Attributes[fieldSubject], msg.ID(), func(b ground.Branch) string { return b.Signalled })
}
