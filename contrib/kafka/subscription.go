package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx/internal/inbound"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

const (
	// pollSize is the maximum number of records in a poll of the client.
	pollSize = 500
	// pollPause is the pause after a failed poll. The client retries itself.
	pollPause     = 100 * time.Millisecond
	commitTimeout = 5 * time.Second
	idle          = time.Minute
)

type subscription struct {
	*Subscriber
	detached context.Context // outlives the subscription, so that messages in flight can be settled
	out      chan *message.RawMessage
}

func (s *subscription) run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { s.read(ctx) })
	loops.Go(func() { s.commits(ctx) })
	s.dispatch(ctx)
	loops.Wait()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.commit(s.detached)
	close(s.out)
}

// read polls until ctx ends. The client does not rebalance until the polled records are in their partitions.
func (s *subscription) read(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		fetches := s.client.PollRecords(ctx, pollSize)
		s.add(fetches)
		s.client.AllowRebalance()
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		err := fetches.Err()
		switch {
		case err != nil && !failing:
			s.cfg.Logger.Error("kafka: read failed", "error", err)
		case err == nil && failing && fetches.NumRecords() > 0:
			s.cfg.Logger.Info("kafka: read recovered")
		}
		if failing = err != nil || failing && fetches.NumRecords() == 0; err != nil {
			sleep.For(ctx, pollPause)
		}
	}
}

// add adds fetched records to their partitions, and pauses partitions that have enough.
func (s *subscription) add(fetches kgo.Fetches) {
	full := map[string][]int32{}
	s.mu.Lock()
	fetches.EachTopic(func(topic kgo.FetchTopic) {
		topic.EachPartition(func(of kgo.FetchPartition) {
			if len(of.Records) == 0 {
				return
			}
			p := s.of(place{topic.Topic, of.Partition}, topic.TopicID)
			for _, rec := range of.Records {
				p.entries = append(p.entries, &entry{rec: rec, partition: p})
			}
			if len(p.entries) >= s.cfg.Buffer && !p.paused {
				p.paused = true
				full[topic.Topic] = append(full[topic.Topic], of.Partition)
			}
		})
	})
	s.mu.Unlock()
	if len(full) > 0 {
		s.client.PauseFetchPartitions(full)
	}
	s.changed()
}

// of returns a partition, and creates it if needed. The caller holds the lock.
func (s *Subscriber) of(at place, topicID [16]byte) *partition {
	p := s.partitions[at]
	if p == nil {
		p = &partition{place: at, epoch: epochOf(topicID), tenure: &message.Tenure{}, abandoned: make(chan struct{})}
		s.partitions[at] = p
		s.order = append(s.order, p)
	}
	return p
}

// changed wakes the dispatcher.
func (s *Subscriber) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// dispatch hands records out, taking turns between the partitions.
func (s *subscription) dispatch(ctx context.Context) {
	for ctx.Err() == nil {
		e, wait := s.nextRecord()
		if e == nil {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
			case <-s.wake:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		raw := s.open(e)
		if raw == nil {
			continue
		}
		select {
		case s.out <- raw:
		case <-e.partition.abandoned:
		case <-ctx.Done():
		}
	}
}

// nextRecord returns the next record, or how long to wait for one.
func (s *subscription) nextRecord() (*entry, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, wait := time.Now(), idle
	for i, p := range s.order {
		e, due := p.nextRecord(now, s.cfg.Concurrency)
		if e != nil {
			s.order = append(append(s.order[:i:i], s.order[i+1:]...), p) // behind all others
			return e, 0
		}
		if !due.IsZero() {
			wait = min(wait, due.Sub(now))
		}
	}
	return nil, wait
}

// open decodes a record that is handed out. It returns nil if that failed and the record is settled.
func (s *subscription) open(e *entry) *message.RawMessage {
	rec := e.rec
	raw, err := s.unmarshal(rec)
	if err != nil {
		raw = plain(rec, "")
		identify(raw.Attributes, rec)
		s.nack(e, raw, message.Permanent(err))
		return nil
	}
	var reason error
	raw.SetAcking(message.NewAckingFrom(message.AckingConfig{
		Nack: func(err error) { reason = err },
		Release: func() {
			s.renew(e)
			reason = message.ErrNacked
		},
		Settled: func() {
			if reason == nil {
				s.ack(e)
			} else {
				s.nack(e, raw, reason)
			}
		},
		Position: s.position(e),
	}))
	return raw
}

func (s *subscription) unmarshal(rec *kgo.Record) (*message.RawMessage, error) {
	raw, err := inbound.Decode(rec, s.cfg.Unmarshal)
	if err != nil {
		return nil, err
	}
	identify(raw.Attributes, rec)
	return raw, nil
}

// ack settles a record, unless its partition belongs to another member.
func (s *subscription) ack(e *entry) {
	p := e.partition
	s.mu.Lock()
	if p.gone() {
		s.mu.Unlock()
		return
	}
	p.ack(e)
	resume := p.paused && len(p.entries) <= s.cfg.Buffer/2
	if resume {
		p.paused = false
	}
	late := s.ended
	s.mu.Unlock()
	if resume {
		s.client.ResumeFetchPartitions(map[string][]int32{p.topic: {p.partition}})
	}
	if late {
		s.commit(s.detached)
	}
	s.changed()
}

// nack makes a record due again, or a dead letter. The record blocks its partition's offset until it is acked or is a dead
// letter.
func (s *subscription) nack(e *entry, raw *message.RawMessage, reason error) {
	s.mu.Lock()
	e.nacks++
	nacks, gone := e.nacks, e.partition.gone()
	s.mu.Unlock()
	if gone {
		return
	}
	delay, asked := message.RetryDelay(reason)
	if !asked {
		delay = s.cfg.NackBackoff.Delay(nacks)
	}
	stopped := errors.Is(reason, message.ErrStopped) // no handler has failed
	if message.IsPermanent(reason) || !stopped && s.cfg.MaxDeliveries > 0 && nacks >= s.cfg.MaxDeliveries {
		if s.publishDeadLetter(raw, reason) {
			s.ack(e)
			return
		}
	}
	s.mu.Lock()
	e.state, e.due = postponed, time.Now().Add(delay)
	s.mu.Unlock()
	s.changed()
}

// publishDeadLetter publishes a dead letter, and reports whether the record counts as acked.
func (s *subscription) publishDeadLetter(raw *message.RawMessage, reason error) bool {
	log := s.cfg.Logger.With("id", raw.ID(), "source", raw.Source(), "reason", reason)
	if s.cfg.DeadLetter == nil {
		log.Error("kafka: partition blocked by a refused record")
		return false
	}
	if err := inbound.Bury(s.detached, s.cfg.DeadLetter, raw, reason); err != nil {
		log.Error("kafka: dead letter not published", "error", err)
		return false
	}
	log.Error("kafka: record dead-lettered")
	return true
}

// commits writes offsets every CommitInterval until ctx ends.
func (s *subscription) commits(ctx context.Context) {
	for sleep.For(ctx, s.cfg.CommitInterval); ctx.Err() == nil; sleep.For(ctx, s.cfg.CommitInterval) {
		s.commit(ctx)
	}
}
