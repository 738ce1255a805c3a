package kafka

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx/message"
)

// Ordered returns nil if the Subscriber keeps the order of each partition and skips no record, as inbox.Position needs. The error
// names the field or the option of the client to change. The client must exist.
func (s *Subscriber) Ordered() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	client, err := s.onlyClient()
	switch {
	case s.cfg.Concurrency > 1:
		return fmt.Errorf("kafka: SubscriberConfig.Concurrency is %d and does not keep the order of a partition; use 1", s.cfg.Concurrency)
	case s.cfg.MaxDeliveries > 0:
		return fmt.Errorf("kafka: SubscriberConfig.MaxDeliveries is %d and skips records without a commit; use 0, and PositionConfig.MaxAttempts to park them", s.cfg.MaxDeliveries)
	case err != nil:
		return err
	}
	start := any(kgo.NewOffset().AtStart())
	if client.OptValue(kgo.ConsumeStartOffset) != start || client.OptValue(kgo.ConsumeResetOffset) != start {
		return errors.New("kafka: the client may skip records if the group's offsets are lost; create it with kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()) and without kgo.ConsumeStartOffset")
	}
	return nil
}

// position returns where a record stands in its partition. It is empty if the Subscriber does not keep order.
func (s *subscription) position(e *entry) message.Position {
	if s.cfg.Concurrency > 1 {
		return message.Position{}
	}
	p := e.partition
	s.mu.Lock()
	defer s.mu.Unlock()
	return message.Position{
		Source: sourceOf(p.topic), Partition: fmt.Sprint(p.partition), Offset: fmt.Sprintf("%020d", e.rec.Offset),
		Epoch: p.epoch, Tenure: p.tenure,
	}
}

// renew starts a new tenure of a record's partition, because a newer tenure has moved the position. This member may still be the owner:
// a former one that had stalled may have started its tenure late. The group decides, because it accepts offsets from the owner only.
func (s *subscription) renew(e *entry) {
	if s.cfg.Concurrency > 1 {
		return // there are no positions
	}
	p := e.partition
	s.cfg.Logger.Warn("kafka: record released after its position moved", "topic", p.topic, "partition", p.partition, "offset", e.rec.Offset)
	s.committing.Lock()
	defer s.committing.Unlock()
	s.mu.Lock()
	gone := p.gone()
	if !gone {
		p.next, p.dirty = kgo.EpochOffset{Epoch: e.rec.LeaderEpoch, Offset: e.rec.Offset}, true // all before it are acked
	}
	s.mu.Unlock()
	if gone || !s.commitOf(s.detached, []*partition{p}) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.tenure = &message.Tenure{}
}

// epochOf returns the text of a topic's id. It is empty for brokers before Kafka 3.1, which return none.
func epochOf(topicID [16]byte) string {
	if topicID == [16]byte{} {
		return ""
	}
	return hex.EncodeToString(topicID[:])
}

func sourceOf(topic string) string { return "kafka://" + topic }

// created notifies a Subscriber of the client that was created with its Options.
type created struct{ s *Subscriber }

// OnNewClient implements kgo.HookNewClient.
func (c created) OnNewClient(client *kgo.Client) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.clients = append(c.s.clients, client)
}

// onlyClient returns the client that was created with the Options. The caller holds the lock.
func (s *Subscriber) onlyClient() (*kgo.Client, error) {
	switch len(s.clients) {
	case 0:
		return nil, errors.New("kafka: the Subscriber has no client; create one with Subscriber.Options")
	case 1:
		return s.clients[0], nil
	default:
		return nil, fmt.Errorf("kafka: %d clients were created with the Options of one Subscriber; create a Subscriber for each", len(s.clients))
	}
}
