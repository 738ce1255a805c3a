package stream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/inbound"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

const (
	ackAttempts = 3
	ackTimeout  = 5 * time.Second
)

// subscription is one run of a Subscriber. The reader delivers new entries, entries whose reply was lost, and entries that
// other consumers left behind. The redeliverer delivers entries that were nacked here.
type subscription struct {
	*Subscriber
	detached context.Context // outlives the subscription, because messages in flight are still settled
	member   group.Member
	start    string // start position of the group, if it is created here
	ledger   *ledger
	outage   outage
	decoded  atomic.Int64 // bytes in flight that codecs have decoded
	doubt    atomic.Bool  // a request that makes entries pending had no reply, and may still arrive
	// out has room for every message in flight, so that deliveries never block.
	out chan *message.RawMessage
}

func newSubscription(ctx context.Context, s *Subscriber, inFlight int) (*subscription, error) {
	sub := &subscription{
		Subscriber: s,
		detached:   context.WithoutCancel(ctx),
		member:     group.Member{Client: s.client, Stream: s.cfg.Stream, Group: s.cfg.Group, Consumer: s.cfg.Consumer},
		start:      s.cfg.StartID,
		ledger:     newLedger(inFlight),
		out:        make(chan *message.RawMessage, inFlight),
	}
	log := s.cfg.Logger.With("stream", s.cfg.Stream, "group", s.cfg.Group)
	sub.outage.log = log
	if sub.member.Consumer == "" {
		sub.member.Consumer = consumerName()
	}
	if sub.start == "$" { // so that a group that is created again later misses nothing
		var err error
		if sub.start, err = group.LastID(ctx, s.client, s.cfg.Stream); err != nil {
			return nil, fmt.Errorf("stream: where to start reading %q: %w", s.cfg.Stream, err)
		}
	}
	if _, err := sub.member.Create(ctx, sub.start); err != nil {
		return nil, fmt.Errorf("stream: make group %q of %q: %w", s.cfg.Group, s.cfg.Stream, err)
	}
	return sub, nil
}

func consumerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost" // the random part is enough
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8]))
}

// run reads with loop until ctx ends. It is registered in a list of processes, which may be nil.
func (s *subscription) run(ctx context.Context, list *process.List, loop func(context.Context)) {
	var wg sync.WaitGroup
	wg.Go(func() { s.redeliver(ctx) })
	beating, stop := context.WithCancel(s.detached) // as long as the loop, which may wait for handlers
	wg.Go(func() { s.heartbeat(beating) })
	wg.Go(func() { list.Keep(beating, process.Consumer, s.report) })
	loop(ctx)
	stop()
	wg.Wait()
	s.giveBack()
	waiting, empty := s.ledger.close()
	s.offerNacked(waiting)
	if empty {
		s.leave()
	}
	s.active.Store(false)
	close(s.out)
}

// hand delivers a held entry. If the entry has no message, it is no longer held.
func (s *subscription) hand(e *entry, f group.Fetched) {
	if msg := s.open(e, f); msg != nil {
		s.out <- msg
	}
}

// open returns the message of a held entry. If it has none, open returns nil, and the entry is no longer held.
func (s *subscription) open(e *entry, f group.Fetched) *message.RawMessage {
	if f.Values == nil {
		s.ack(e.id)
		s.noteTrimmed(e.id)
		s.ledger.forget(e)
		return nil
	}
	before := e.from
	s.ledger.delivered(e, s.member.Consumer, f.Deliveries)
	msg, size, err := s.unmarshal(e.id, f.Values)
	if err != nil {
		s.malformed(e, err)
		return nil
	}
	if !s.keepDecoded(e, size) {
		return nil
	}
	msg.SetAcking(s.acking(e))
	s.given(e, before)
	return msg
}

func (s *subscription) malformed(e *entry, err error) {
	s.counts.malformed.Add(1)
	if s.cfg.DeadLetter != "" {
		s.deadLetter(e, err.Error())
		return
	}
	s.outage.log.Error("stream: entry not decoded", "entry", e.id, "error", err)
	s.ledger.shun(e, s.cfg.MaxIdleTime)
}

// keepDecoded counts the bytes of decoded data of a message that is to be delivered. If there are too many in flight it
// returns false, and the entry waits until others are settled.
func (s *subscription) keepDecoded(e *entry, size int64) bool {
	if held := s.decoded.Add(size); size == 0 || held <= s.cfg.MaxDecodedBytes || held == size {
		e.decoded, e.deferred = size, 0
		return true
	}
	s.decoded.Add(-size)
	e.deferred++
	s.uncount(e)
	s.ledger.postpone(e, max(readBackoff.Delay(e.deferred), minBlock))
	return false
}

// uncount cancels the last delivery of an entry, which no handler has had.
func (s *subscription) uncount(e *entry) {
	ctx, cancel := context.WithTimeout(s.detached, ackTimeout)
	defer cancel()
	if s.member.Hold(ctx, []string{e.id}, 0, true) == nil {
		e.deliveries--
	} else {
		e.uncounted++
	}
}

// unmarshal decodes an entry's fields into a message. It returns the size in bytes of data that codecs have decoded.
func (s *subscription) unmarshal(id string, values map[string]any) (msg *message.RawMessage, size int64, err error) {
	defer inbound.RecoverTo(&err) // of a codec
	msg, err = inbound.Decode(values, func(values map[string]any) (*message.RawMessage, error) { return s.cfg.Unmarshal(id, values) })
	if err != nil {
		return nil, 0, err
	}
	changed, err := decode(s.cfg.Codecs, msg)
	if err != nil {
		return nil, 0, err
	}
	if changed {
		size = int64(len(msg.Data))
	}
	identify(msg.Attributes, message.AttrID, id)
	identify(msg.Attributes, message.AttrSource, s.cfg.Stream)
	return msg, size, nil
}

// identify sets an attribute that is missing.
func identify(attrs message.Attributes, name, identity string) {
	if v := attrs[name]; v == nil || v == "" {
		attrs[name] = identity
	}
}

func (s *subscription) acking(e *entry) *message.Acking {
	var by struct {
		nack     error
		released bool
	}
	cfg := message.AckingConfig{
		Ack:  func() { s.ack(e.id) },
		Nack: func(err error) { by.nack = err },
		Settled: func() {
			s.notifySettled(e, by.nack, by.released)
			s.decoded.Add(-e.decoded)
			s.settled(e, by.nack)
		},
		Source:  s.source(e),
		Forward: s.outbox,
	}
	if s.cfg.Observer.Settled != nil {
		cfg.Release = func() { by.released = true }
	}
	return message.NewAckingFrom(cfg)
}

// settled releases the place of a message in flight. If the message was nacked, the error is not nil.
func (s *subscription) settled(e *entry, nacked error) {
	if errors.Is(nacked, message.ErrStopped) {
		s.uncount(e)
	}
	var last bool
	switch {
	case nacked == nil:
		last = s.ledger.forget(e)
	case s.cfg.DeadLetter != "" && (message.IsPermanent(nacked) || s.usedUp(e.deliveries-e.uncounted)):
		last = s.deadLetter(e, nacked.Error())
	case message.IsPermanent(nacked):
		s.outage.log.Error("stream: message refused", "entry", e.id, "error", nacked)
		last = s.ledger.shun(e, s.cfg.MaxIdleTime)
	default:
		e.nacks++
		delay, asked := message.RetryDelay(nacked)
		if !asked {
			delay = s.cfg.NackBackoff.Delay(e.nacks)
		}
		var over bool
		if last, over = s.ledger.postpone(e, delay); over {
			s.offerNacked([]*entry{e})
		}
	}
	if last {
		s.leave()
	}
}

// ack acknowledges an entry, in several attempts and even after the end of the subscription. If that fails, the entry is
// delivered again.
func (s *subscription) ack(id string) {
	ctx, cancel := context.WithTimeout(s.detached, ackTimeout)
	defer cancel()
	var err error
	for attempt := 1; attempt <= ackAttempts; attempt++ {
		if err = s.acknowledge(ctx, id); err == nil {
			return
		}
		if attempt < ackAttempts && !sleep.For(ctx, message.Backoff{}.Delay(attempt)) {
			break
		}
	}
	s.counts.ackFailed.Add(1)
	s.outage.log.Error("stream: ack failed", "entry", id, "error", err)
}

func (s *subscription) acknowledge(ctx context.Context, id string) error {
	if s.cfg.DeleteAcked {
		return s.member.AckAndDelete(ctx, id)
	}
	_, err := s.member.Ack(ctx, id)
	return err
}

func (s *subscription) noteTrimmed(id string) {
	s.counts.trimmed.Add(1)
	s.outage.log.Error("stream: unacked entry trimmed", "entry", id)
}
