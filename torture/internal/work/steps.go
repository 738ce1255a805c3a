package work

import (
	"context"
	"errors"
	"slices"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
	"github.com/luatx/luatx/torture/internal/ground"
)

// attrStumbles is the attribute of a step that states whether it fails for good.
const attrStumbles = "stumbles"

var errStumbled = errors.New("stumbled")

// steps reads the partitioned stream of steps until ctx ends. The inbox of the steps is one position for each branch. Some processes
// read single messages and the others batches that commit together.
func (p *process) steps(ctx context.Context) {
	cfg := stream.PartitionedConfig{SubscriberConfig: p.subscriber(ground.StepStream), Lease: ground.Lease}
	cfg.ClaimInterval = 0 // leases decide what is taken over
	sub, err := stream.NewPartitionedSubscriber(p.client, p.Plan.Space(), cfg)
	if err != nil {
		p.check(err)
		return
	}
	p.check(p.insist(ctx, func() error {
		mw := message.Chain(luatx.Middleware(p.tr), inbox.Position(inbox.PositionConfig{}))
		engine, err := p.engine(mw, map[string]message.Handler{"step": message.NewHandler(p.step, message.Named(StepType))})
		if err != nil {
			return err
		}
		if p.Number%2 == 0 {
			if err := engine.AddSubscriber("steps", nil, sub); err != nil {
				return err
			}
			return engine.Run(ctx)
		}
		return sub.Consume(ctx, p.tr, engine)
	}))
}

// step appends its id to the list of its branch.
func (p *process) step(ctx context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
	i := slices.IndexFunc(p.branches, func(b ground.Branch) bool { return slices.Contains(b.Steppers, msg.Subject()) })
	if i < 0 || msg.Attributes[attrStumbles] == "1" {
		return nil, message.Permanent(errStumbled)
	}
	if err := mishap(ctx); err != nil {
		return nil, err
	}
	return nil, luatx.Queued(luatx.CmdableFromContext(ctx, p.client).RPush(ctx, p.branches[i].Stepped, msg.ID()))
}
