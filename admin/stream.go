package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

// StreamConfig configures a Stream. Stream and Operator are required.
type StreamConfig struct {
	// Stream is the key to which pipeline.Outbox adds events.
	Stream string
	// Group is the consumer group that publishes them. Defaults to stream.OutboxGroup.
	Group string
	// DeadLetter is the key of the dead-letter stream, as in stream.SubscriberConfig. Defaults to
	// stream.DeadLetterKey(Stream).
	DeadLetter string
	// Operator is the operator's name for the audit.
	Operator string
	// Unmarshal decodes an entry. Defaults to stream.UnmarshalOutbox.
	Unmarshal func(id string, values map[string]any) (*message.RawMessage, error)
}

// Stream is the outbox of the pipeline mode: a stream whose entries a group publishes. Its dead letters are its parked events. It
// is safe for concurrent use.
type Stream struct {
	client redis.UniversalClient
	cfg    StreamConfig
	audit  string // the key of the stream with the audit
	slot   int
}

// NewStream returns a Stream. It does no I/O.
func NewStream(client redis.UniversalClient, cfg StreamConfig) (*Stream, error) {
	cfg.Group = cmp.Or(cfg.Group, stream.OutboxGroup)
	cfg.DeadLetter = cmp.Or(cfg.DeadLetter, stream.DeadLetterKey(cfg.Stream))
	if cfg.Unmarshal == nil {
		cfg.Unmarshal = stream.UnmarshalOutbox
	}
	n, audit := slot.Of(cfg.Stream), cfg.DeadLetter+":audit"
	switch {
	case client == nil:
		return nil, errors.New("admin: NewStream: the client is nil")
	case cfg.Stream == "" || cfg.Operator == "":
		return nil, errors.New("admin: StreamConfig.Stream or Operator is empty; set both")
	case slot.Of(cfg.DeadLetter) != n || slot.Of(audit) != n:
		return nil, fmt.Errorf("admin: StreamConfig.DeadLetter %q and %q are not keys of the slot of Stream %q; use the same hash tag",
			cfg.DeadLetter, audit, cfg.Stream)
	}
	return &Stream{client, cfg, audit, n}, nil
}

// Slot returns the slot of the stream, under which its events are listed.
func (s *Stream) Slot() int { return s.slot }

// Counts counts the entries that the group has not acknowledged as pending, those of them that a consumer has as leased,
// and the dead letters as parked. The number of sent events is unknown. A server before Redis 7.0 reads the unread entries
// to count them.
func (s *Stream) Counts(ctx context.Context) (outbox.Counts, error) {
	var c outbox.Counts
	dead, err := s.client.XLen(ctx, s.cfg.DeadLetter).Result()
	if err != nil {
		return c, s.failed("counts", err)
	}
	c.Parked = dead
	groups, err := s.client.XInfoGroups(ctx, s.cfg.Stream).Result()
	if err != nil && !strings.Contains(err.Error(), "no such key") {
		return c, s.failed("counts", err)
	}
	last := "0-0" // a group that does not exist yet reads all entries
	for _, g := range groups {
		if g.Name != s.cfg.Group {
			continue
		}
		if c.Leased, last = g.Pending, g.LastDeliveredID; g.EntriesRead > 0 && g.Lag >= 0 {
			c.Pending = g.Pending + g.Lag
			return c, nil
		}
	}
	unread, err := s.unread(ctx, last)
	c.Pending = c.Leased + unread
	return c, s.failed("counts", err)
}

// page is the number of entries per read.
const page = 1000

// unread counts the entries after the last one.
func (s *Stream) unread(ctx context.Context, last string) (n int64, err error) {
	for {
		entries, err := s.client.XRangeN(ctx, s.cfg.Stream, group.Behind(last), "+", page).Result()
		n += int64(len(entries))
		if err != nil || len(entries) < page {
			return n, err
		}
		last = entries[len(entries)-1].ID
	}
}

// Parked lists the dead letters that match the filter, oldest first. The ID of an event is the id of its entry in the dead-letter
// stream, and its Attempts are the deliveries. It has no class. If Filter.Aggregate is set, Parked yields an error, because a
// stream has no aggregates. An entry that is not a dead letter, or whose message cannot be decoded, comes with the error, and the list
// continues.
func (s *Stream) Parked(ctx context.Context, f outbox.Filter) iter.Seq2[outbox.Event, error] {
	return func(yield func(outbox.Event, error) bool) {
		if f.Aggregate != "" {
			yield(outbox.Event{}, errors.New("admin: Filter.Aggregate is set, but a stream has no aggregates"))
			return
		}
		now, err := s.client.Time(ctx).Result()
		if err != nil {
			yield(outbox.Event{}, s.failed("list parked events", err))
			return
		}
		for dead, err := range stream.DeadLetters(ctx, s.client, s.cfg.DeadLetter) {
			if err != nil && !errors.Is(err, stream.ErrNotDeadLetter) {
				yield(outbox.Event{}, s.failed("list parked events", err))
				return
			}
			e := s.event(dead)
			if err == nil {
				e.Message, err = s.cfg.Unmarshal(dead.Entry, dead.Values)
			}
			if e.Message != nil {
				e.Destination = e.Message.Destination()
			}
			if f.Matches(e, now) && !yield(e, err) {
				return
			}
		}
	}
}

func (s *Stream) event(dead stream.DeadLetter) outbox.Event {
	e := outbox.Event{
		Slot: s.slot, ID: dead.ID, State: outbox.Parked, At: group.Time(dead.ID), Attempts: int(dead.Deliveries), Error: dead.Reason,
	}
	if dead.Reason != "" {
		e.History = []outbox.Failure{{At: dead.Last, Attempt: e.Attempts, Text: dead.Reason}}
	}
	return e
}

// Rearm moves dead letters back to the end of the stream, by their ids. Every group of the stream reads them.
func (s *Stream) Rearm(ctx context.Context, slotNumber int, ids ...string) (outbox.Answers, error) {
	return s.act(ctx, "rearm", "by id", slotNumber, ids)
}

// Discard deletes dead letters by their ids.
func (s *Stream) Discard(ctx context.Context, slotNumber int, reason string, ids ...string) (outbox.Answers, error) {
	if reason == "" {
		return nil, errors.New("admin: discard: the reason is empty; set a reason for the audit")
	}
	return s.act(ctx, "discard", reason, slotNumber, ids)
}

func (s *Stream) act(ctx context.Context, what, why string, slotNumber int, ids []string) (outbox.Answers, error) {
	if slotNumber != s.slot {
		return nil, fmt.Errorf("admin: slot %d does not match: the stream %q is in slot %d", slotNumber, s.cfg.Stream, s.slot)
	}
	step := deadStep{client: s.client, audit: s.audit, act: shard.Act{Operation: newOperation(), Who: s.cfg.Operator, Why: why}}
	var all outbox.Answers
	for chunk := range slices.Chunk(ids, maxIDs) {
		letters, _, err := step.run(ctx, s.cfg.DeadLetter, s.cfg.Stream, what, chunk)
		for i := range letters {
			all = append(all, outbox.Answer{ID: chunk[i], Outcome: outcomes[letters[i]]})
		}
		if err != nil {
			return all, s.failed(what, err)
		}
	}
	return all, nil
}

var outcomes = map[byte]outbox.Outcome{'d': outbox.Done, 'u': outbox.Unknown, 'w': outbox.WrongState}

// Audit lists the acts of operators on the stream's dead letters since a time, oldest first. It keeps about the last 10,000
// records.
func (s *Stream) Audit(ctx context.Context, since time.Time) iter.Seq2[outbox.Record, error] {
	return func(yield func(outbox.Record, error) bool) {
		for from := strconv.FormatInt(max(0, since.UnixMilli()), 10); ; {
			entries, err := s.client.XRangeN(ctx, s.audit, from, "+", maxIDs).Result()
			if err != nil {
				yield(outbox.Record{}, s.failed("audit", err))
				return
			}
			for _, e := range entries {
				if !yield(outbox.Record(shard.ParseRecord(s.slot, e)), nil) {
					return
				}
				from = group.Behind(e.ID)
			}
			if len(entries) < maxIDs {
				return
			}
		}
	}
}

// failed converts an error of the server to a typed error.
func (s *Stream) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return &outbox.StorageError{Op: op + " of stream " + s.cfg.Stream, Slot: s.slot, Err: err}
}
