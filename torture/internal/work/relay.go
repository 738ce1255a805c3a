package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/piped"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/repair"
	"github.com/luatx/luatx/stream"
	"github.com/luatx/luatx/torture/internal/ground"
)

// The events of each kind, by their ids.
const (
	refusedOf = 200 // one in refusedOf is rejected permanently, until an operator re-arms it
	failedOf  = 50  // one in failedOf is rejected once
	slowOf    = 300 // one in slowOf takes slow, nearly as long as a publish may take
	slow      = 500 * time.Millisecond
)

// relay publishes the events that other processes commit, and repairs.
func (p *process) relay(ctx context.Context) error {
	relays, err := p.newRelay(true)
	if err != nil {
		return err
	}
	worker, err := repair.New(p.tr, repair.Config{Interval: time.Second, Lease: time.Second, Step: 1000, Logger: p.log})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { p.check(worker.Run(ctx)) })
	err = relays.Run(ctx)
	running.Wait()
	return err
}

func (p *process) newRelay(cold bool) (*relay.Relay, error) {
	sink, err := p.newSink()
	if err != nil {
		return nil, err
	}
	cfg := relay.Config{
		NoInline: cold, Lease: ground.Lease, SweepInterval: 250 * time.Millisecond, BackoffBase: 50 * time.Millisecond,
		BackoffCap: 500 * time.Millisecond, PauseCap: 500 * time.Millisecond, SentRetention: 24 * time.Hour, Logger: p.log,
	}
	if p.Plan.Wait > 0 {
		cfg.Barrier = relay.Barrier{Replicas: p.Plan.Wait}
	}
	return relay.New(p.tr, sink, cfg)
}

// sink publishes all events to the broker's stream, and then those for another branch to the stream of that branch.
type sink struct {
	*process
	broker   *redis.Client
	branches *stream.Publisher
}

func (p *process) newSink() (*sink, error) {
	branches, err := stream.NewPublisher(p.client, stream.PublisherConfig{
		StreamFor: func(msg *message.RawMessage) (string, error) {
			b, found := p.branch(msg.Subject())
			if !found {
				return "", message.Permanent(fmt.Errorf("unknown branch %q", msg.Subject()))
			}
			return b.Orders, nil
		},
		Logger: p.log,
	})
	if err != nil {
		return nil, err
	}
	return &sink{process: p, broker: p.Plan.ConnectBroker(), branches: branches}, nil
}

// Publish implements relay.Publisher.
func (s *sink) Publish(ctx context.Context, events []*message.RawMessage) []error {
	left := time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	errs := s.judge(ctx, events)
	s.publish(ctx, events, errs, left) // first, so that the broker knows every event that arrives
	s.forward(ctx, events, errs)
	return errs
}

// judge returns errors for the events that the broker rejects this time, and delays slow events.
func (s *sink) judge(ctx context.Context, events []*message.RawMessage) []error {
	errs := make([]error, len(events))
	pipe := s.broker.Pipeline()
	verdicts := make(map[int]*redis.IntCmd)
	long := false
	for i, event := range events {
		switch n := hash(event.ID()); {
		case n%refusedOf == 0:
			verdicts[i] = pipe.SAdd(ctx, s.Plan.Refused(), event.ID())
		case n%failedOf == 1:
			verdicts[i] = pipe.SAdd(ctx, s.Plan.Failed(), event.ID())
		case n%slowOf == 2:
			long = true
		}
	}
	_, err := pipe.Exec(ctx)
	if long && err == nil {
		err = pause(ctx, slow)
	}
	for i := range events {
		verdict := verdicts[i]
		switch {
		case err != nil:
			errs[i] = relay.Unavailable(err)
		case verdict == nil || verdict.Val() == 0: // not to be rejected, or rejected before
		case hash(events[i].ID())%refusedOf == 0:
			errs[i] = message.Permanent(relay.Classify("torture", errors.New("rejected until an operator re-arms it")))
		default:
			errs[i] = errors.New("rejected once")
		}
	}
	return errs
}

// forward writes events for another branch to the stream of that branch.
func (s *sink) forward(ctx context.Context, events []*message.RawMessage, errs []error) {
	var sent []*message.RawMessage
	var which []int
	for i, event := range events {
		if errs[i] == nil && event.Type() == SentType {
			sent, which = append(sent, event), append(which, i)
		}
	}
	if len(sent) == 0 {
		return
	}
	for i, err := range s.branches.Send(ctx, sent...) {
		errs[which[i]] = relay.Unavailable(err)
	}
}

// publish writes the other events to the broker in their order, with the rest of the relay's deadline.
func (s *sink) publish(ctx context.Context, events []*message.RawMessage, errs []error, left time.Duration) {
	pipe := s.broker.Pipeline()
	added := make([]*redis.StringCmd, len(events))
	for i, event := range events {
		if errs[i] == nil {
			due, _ := event.Attributes[attrDue].(string)
			declared, has := filling(event)
			added[i] = pipe.XAdd(ctx, &redis.XAddArgs{Stream: s.Plan.Published(), Values: []any{
				"id", event.ID(), "of", event.CorrelationID(), "branch", event.Subject(), "type", event.Type(),
				"due", cmp.Or(due, "0"), "left", strconv.FormatInt(left.Milliseconds(), 10), "declared", declared, "filling", has,
			}})
		}
	}
	_, _ = piped.Exec(ctx, pipe) // each command holds its error
	for i, cmd := range added {
		if cmd != nil {
			errs[i] = relay.Unavailable(cmd.Err())
		}
	}
}
