package nats

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/luatx/luatx/internal/inbound"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

var errEnded = errors.New("nats: the subscription has ended")

const lookTimeout = 2 * time.Second

// fetchBackoff is the pause between failed requests.
var fetchBackoff = message.Backoff{Base: 50 * time.Millisecond, Max: 2 * time.Second}

// subscription is one run of a Subscriber.
type subscription struct {
	*Subscriber
	detached context.Context // outlives the subscription, so that messages in flight can be settled
	// out has room for every message in flight, so that handing out never blocks.
	out chan *message.RawMessage

	mu     sync.Mutex
	held   map[jetstream.Msg]bool // handed out and not settled
	places *sync.Cond             // signals changes of held

	// These are for positions, and belong to run.
	tenure    *message.Tenure
	epoch     string // of the stream; empty: look it up with the next message
	delivered uint64 // the consumer's count of deliveries, with the last message
}

func newSubscription(ctx context.Context, s *Subscriber) *subscription {
	sub := &subscription{
		Subscriber: s, detached: context.WithoutCancel(ctx),
		out: make(chan *message.RawMessage, s.cfg.MaxInFlight), held: make(map[jetstream.Msg]bool),
		tenure: &message.Tenure{Shared: true},
	}
	sub.places = sync.NewCond(&sub.mu)
	return sub
}

func (s *subscription) run(ctx context.Context, consumer jetstream.Consumer) {
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.places.Broadcast()
	})()
	var beating sync.WaitGroup
	if !s.cfg.NoHeartbeat {
		sign := signs(consumer) // find replaces the consumer
		beating.Go(func() { s.beat(ctx, sign) })
	}
	log := s.cfg.Logger.With("stream", s.cfg.Stream, "consumer", s.cfg.Durable)
	for failures := 0; ctx.Err() == nil; {
		err := s.fetch(ctx, consumer)
		switch {
		case ctx.Err() != nil:
		case err == nil && failures > 0:
			log.Info("nats: read recovered", "tries", failures)
			failures = 0
		case err != nil:
			if failures++; failures == 1 {
				log.Error("nats: read failed", "error", err)
			}
			sleep.For(ctx, fetchBackoff.Delay(failures))
			if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, nats.ErrNoResponders) {
				consumer = s.find(ctx, consumer)
			}
		}
	}
	beating.Wait()
	s.giveBack()
	close(s.out)
}

// find finds or creates the consumer again, because a restarted server may have lost it.
func (s *subscription) find(ctx context.Context, consumer jetstream.Consumer) jetstream.Consumer {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if found, err := s.consumer(ctx); err == nil {
		return found
	}
	return consumer
}

// fetch requests as many messages as there is room for, and hands them out as they arrive.
func (s *subscription) fetch(ctx context.Context, consumer jetstream.Consumer) error {
	n := s.room(ctx)
	if n == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	batch, err := consumer.Fetch(n, jetstream.FetchContext(bounded), jetstream.FetchHeartbeat(fetchBeat))
	if err != nil {
		return err
	}
	given := false
	for msg := range batch.Messages() {
		given = true
		s.give(ctx, consumer, msg)
	}
	if !given {
		s.epoch = "" // the stream may be created again while nothing comes
	}
	if err := batch.Error(); err != nil && bounded.Err() == nil && !errors.Is(err, nats.ErrTimeout) {
		return err
	}
	return nil
}

// room waits until a message may be handed out, and returns how many. It returns 0 after ctx has ended.
func (s *subscription) room(ctx context.Context) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ctx.Err() == nil {
		if n := s.cfg.MaxInFlight - len(s.held); n > 0 {
			return n
		}
		s.places.Wait()
	}
	return 0
}

func (s *subscription) give(ctx context.Context, consumer jetstream.Consumer, msg jetstream.Msg) {
	s.mu.Lock()
	s.held[msg] = true
	s.mu.Unlock()
	meta, err := msg.Metadata()
	if err != nil { // not a message of a consumer, so it cannot be settled
		s.cfg.Logger.Error("nats: message without metadata", "subject", msg.Subject(), "error", err)
		s.let(msg)
		return
	}
	at, misplaced := s.position(ctx, consumer, meta)
	raw, err := s.unmarshal(msg, meta)
	acking := message.NewAckingFrom(message.AckingConfig{
		Ack:      func() { s.logSettlement(msg, "ack", msg.Ack()) },
		Nack:     func(err error) { s.nack(msg, meta, raw, err) },
		Release:  func() { s.nack(msg, meta, raw, message.ErrNacked) }, // an operator has moved its position
		Settled:  func() { s.let(msg) },
		Position: at,
	})
	if err != nil {
		raw = plain(msg.Subject(), msg.Headers().Get(headerContentType), msg.Data())
		identify(raw.Attributes, meta)
		raw.SetAcking(acking)
		raw.Nack(message.Permanent(err))
		return
	}
	raw.SetAcking(acking)
	if misplaced != nil {
		s.cfg.Logger.Error("nats: position unknown", "id", raw.ID(), "error", misplaced)
		raw.Nack(misplaced)
		return
	}
	s.out <- raw
}

// let frees the place of a message.
func (s *subscription) let(msg jetstream.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, msg)
	s.places.Broadcast()
}

func (s *subscription) unmarshal(msg jetstream.Msg, meta *jetstream.MsgMetadata) (*message.RawMessage, error) {
	raw, err := inbound.Decode(msg, s.cfg.Unmarshal)
	if err != nil {
		return nil, err
	}
	identify(raw.Attributes, meta)
	return raw, nil
}

// identify sets an id and a source that are the same for every delivery. A sequence alone would be ambiguous after the stream was
// deleted and created again.
func identify(attrs message.Attributes, meta *jetstream.MsgMetadata) {
	if attrs.ID() == "" {
		attrs[message.AttrID] = strconv.FormatUint(meta.Sequence.Stream, 10) + "-" + strconv.FormatInt(meta.Timestamp.UnixNano(), 10)
	}
	if attrs.Source() == "" {
		attrs[message.AttrSource] = sourceOf(meta.Stream)
	}
}

// nack returns a message to the server, or makes it a dead letter.
func (s *subscription) nack(msg jetstream.Msg, meta *jetstream.MsgMetadata, raw *message.RawMessage, reason error) {
	delivered := int(min(meta.NumDelivered, 1<<30)) //nolint:gosec // bounded
	delay, asked := message.RetryDelay(reason)
	if !asked {
		delay = s.cfg.NackBackoff.Delay(delivered)
	}
	stopped := errors.Is(reason, errEnded) || errors.Is(reason, message.ErrStopped) // no handler has failed
	switch {
	case message.IsPermanent(reason), !stopped && s.cfg.MaxDeliveries > 0 && delivered >= s.cfg.MaxDeliveries:
		err := s.publishDeadLetter(raw, reason)
		if err == nil {
			s.logSettlement(msg, "term", msg.TermWithReason(reason.Error()))
			return
		}
		s.cfg.Logger.Error("nats: dead letter not published", "id", raw.ID(), "error", err)
	case stopped:
		delay = 0 // another subscriber may take it at once
	}
	s.logSettlement(msg, "nack", msg.NakWithDelay(delay))
}

// publishDeadLetter publishes a dead letter if DeadLetter is set.
func (s *subscription) publishDeadLetter(raw *message.RawMessage, reason error) error {
	s.cfg.Logger.Error("nats: message refused", "stream", s.cfg.Stream, "consumer", s.cfg.Durable, "id", raw.ID(), "source", raw.Source(), "error", reason)
	if s.cfg.DeadLetter == nil {
		return nil
	}
	return inbound.Bury(s.detached, s.cfg.DeadLetter, raw, reason)
}

// logSettlement logs if a message could not be settled. The server delivers it again after the consumer's AckWait.
func (s *subscription) logSettlement(msg jetstream.Msg, what string, err error) {
	if err != nil {
		s.cfg.Logger.Warn("nats: settlement failed", "subject", msg.Subject(), "operation", what, "error", err)
	}
}

// beat sends progress signals for all messages in flight until ctx ends, and then a last one.
func (s *subscription) beat(ctx context.Context, every time.Duration) {
	for ctx.Err() == nil {
		sleep.For(ctx, every)
		s.mu.Lock()
		held := make([]jetstream.Msg, 0, len(s.held))
		for msg := range s.held {
			held = append(held, msg)
		}
		s.mu.Unlock()
		for _, msg := range held {
			_ = msg.InProgress() // fails if it was settled meanwhile or is unreachable; the next one may succeed
		}
	}
}

// giveBack nacks the messages that were not received.
func (s *subscription) giveBack() {
	for {
		select {
		case raw := <-s.out:
			raw.Nack(errEnded)
		default:
			return
		}
	}
}
