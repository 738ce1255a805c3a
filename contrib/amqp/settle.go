package amqp

import (
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/message"
)

// acking returns an acking that settles a delivery. A release requeues it, because the broker does not know of another owner.
func (s *session) acking(d *amqp091.Delivery, msg *message.RawMessage) *message.Acking {
	tag, id := d.DeliveryTag, msg.Source()+"\x00"+msg.ID()
	settle := func() { // also after Acknowledged
		s.nacks.forget(id)
		s.sendSettlement(func() error { return s.ch.Ack(tag, false) })
	}
	return message.NewAckingFrom(message.AckingConfig{
		Nack: func(err error) {
			settle = func() { s.nacked(tag, id, d.Headers, err) }
		},
		Release: func() {
			settle = func() { s.requeue(tag) }
		},
		Settled: func() { settle() },
	})
}

func (s *session) nacked(tag uint64, id string, headers amqp091.Table, reason error) {
	if message.IsPermanent(reason) {
		s.nacks.forget(id)
		s.refuse(tag, id, reason)
		return
	}
	count := s.nacks.add(id)
	if known, ok := headers["x-delivery-count"].(int64); ok { // a quorum queue counts the deliveries to all consumers
		count = max(count, int(min(known, 1000))+1)
	}
	delay, asked := message.RetryDelay(reason)
	if !asked {
		delay = s.cfg.NackBackoff.Delay(count)
	}
	s.hold(tag, min(delay, s.cfg.MaxHold))
}

// refuse rejects a message that would fail again in every delivery. Without dead letters, it holds the message.
func (s *session) refuse(tag uint64, id string, reason error) {
	if !s.cfg.DeadLetters {
		s.log.Error("amqp: message refused, no dead letters", "id", id, "error", reason, "retry_in", s.cfg.RefusedHold)
		s.hold(tag, s.cfg.RefusedHold)
		return
	}
	s.log.Warn("amqp: message refused", "id", id, "error", reason)
	s.counts.rejected.Add(1)
	s.sendSettlement(func() error { return s.ch.Nack(tag, false, false) })
}

// hold requeues a delivery after a delay, because the broker has no delayed redelivery.
func (s *session) hold(tag uint64, delay time.Duration) {
	s.mu.Lock()
	if delay <= 0 || s.stopping || s.over {
		s.mu.Unlock()
		s.requeue(tag)
		return
	}
	defer s.mu.Unlock()
	s.held[tag] = time.AfterFunc(delay, func() {
		s.mu.Lock()
		delete(s.held, tag)
		s.mu.Unlock()
		s.requeue(tag)
	})
}

func (s *session) requeue(tag uint64) {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over {
		return // the broker has already requeued it
	}
	s.counts.requeued.Add(1)
	s.sendSettlement(func() error { return s.ch.Nack(tag, false, true) })
}

// sendSettlement settles a delivery at the broker, unless the connection is lost.
func (s *session) sendSettlement(send func() error) {
	if err := send(); err != nil {
		s.counts.lost.Add(1)
		s.log.Debug("amqp: settlement lost", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.signalEmpty()
}

// manyNacks is the maximum number of messages whose nacks are counted.
const manyNacks = 10_000

// nackCounts counts how often messages were nacked in this process.
type nackCounts struct {
	mu sync.Mutex
	of map[string]int
}

func (n *nackCounts) add(id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil || len(n.of) >= manyNacks {
		n.of = map[string]int{}
	}
	n.of[id]++
	return n.of[id]
}

func (n *nackCounts) forget(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, id)
}
