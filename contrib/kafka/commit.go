package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commit commits the changed offsets of all partitions.
func (s *Subscriber) commit(ctx context.Context) {
	s.committing.Lock()
	defer s.committing.Unlock()
	s.mu.Lock()
	moved := slices.Clone(s.order)
	s.mu.Unlock()
	s.commitOf(ctx, moved)
}

// commitOf commits the changed offsets of partitions, and reports whether that succeeded. The caller holds committing. The next
// commit retries offsets that could not be committed.
func (s *Subscriber) commitOf(ctx context.Context, partitions []*partition) bool {
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	s.mu.Lock()
	for _, p := range partitions {
		if !p.dirty {
			continue
		}
		p.dirty = false
		if offsets[p.topic] == nil {
			offsets[p.topic] = make(map[int32]kgo.EpochOffset)
		}
		offsets[p.topic][p.partition] = p.next
	}
	s.mu.Unlock()
	if len(offsets) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	var failed error
	s.client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if failed = err; err != nil {
			return
		}
		for _, topic := range resp.Topics {
			for _, of := range topic.Partitions {
				if err := kerr.ErrorForCode(of.ErrorCode); err != nil {
					failed = err
				}
			}
		}
	})
	if failed == nil {
		return true
	}
	s.cfg.Logger.Warn("kafka: offset commit failed", "error", failed)
	s.mu.Lock()
	for _, p := range partitions {
		p.dirty = p.dirty || offsets[p.topic][p.partition] == p.next && p.next.Offset > 0
	}
	s.mu.Unlock()
	return false
}

// giveUp removes partitions that were revoked or lost. It commits their offsets a last time if the group still accepts that.
// Later acks of their records have no effect.
func (s *Subscriber) giveUp(ctx context.Context, gone map[string][]int32, commit bool) {
	s.committing.Lock()
	defer s.committing.Unlock()
	var left []*partition
	s.mu.Lock()
	for topic, ids := range gone {
		for _, id := range ids {
			if p := s.partitions[place{topic, id}]; p != nil {
				left = append(left, p)
				delete(s.partitions, p.place)
				close(p.abandoned)
			}
		}
	}
	s.order = slices.DeleteFunc(s.order, (*partition).gone)
	s.mu.Unlock()
	if commit && len(left) > 0 {
		s.commitOf(ctx, left)
	}
	paused := make(map[string][]int32)
	for _, p := range left {
		if p.paused {
			paused[p.topic] = append(paused[p.topic], p.partition)
		}
	}
	if len(paused) > 0 {
		s.client.ResumeFetchPartitions(paused) // in case they are assigned again
	}
	s.changed()
}
