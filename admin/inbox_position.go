package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/internal/shard"
)

// InboxPosition is the progress of the transactions of a shard in a partition of a source, see inbox.Position.
type InboxPosition struct {
	Slot      int    `json:"slot"`
	Scope     string `json:"scope"`
	Source    string `json:"source"`
	Partition string `json:"partition"`
	// Offset is the offset of the last commit. Messages at or below it are duplicates. It is empty if none is, after a rewind to the
	// beginning.
	Offset string `json:"offset"`
	// Epoch is the epoch of the source at that commit.
	Epoch string `json:"epoch"`
	// Generation is that of the owner of the last commit, or of the last rewind. Commits of lower ones are rejected.
	Generation int64 `json:"generation"`
	// Broken reports that a rollback has failed. Every commit of the partition fails until a rewind.
	Broken bool `json:"broken"`
}

// InboxPositionFilter chooses positions. Its zero value chooses all.
type InboxPositionFilter struct {
	// Scope, Source and Partition are those of the position. Each defaults to any.
	Scope, Source, Partition string
	// Slots are those of the shards. Defaults to all.
	Slots []int
}

func (f InboxPositionFilter) matches(p shard.Position) bool {
	return (f.Scope == "" || f.Scope == p.Scope) && (f.Source == "" || f.Source == p.Source) && (f.Partition == "" || f.Partition == p.Partition)
}

// InboxPositions lists positions, shard by shard. It is no snapshot: a position that changes meanwhile may be listed twice.
func (o *Operator) InboxPositions(ctx context.Context, f InboxPositionFilter) iter.Seq2[InboxPosition, error] {
	return func(yield func(InboxPosition, error) bool) {
		slots, err := o.slotsOf(f.Slots)
		if err != nil {
			yield(InboxPosition{}, fmt.Errorf("admin: inbox positions: %w", err))
			return
		}
		for chunk := range slices.Chunk(slots, slotsAtOnce) {
			having, err := o.scripts.HasPositions(ctx, chunk)
			if err != nil {
				yield(InboxPosition{}, fmt.Errorf("admin: inbox positions: %w", err))
				return
			}
			for _, n := range having {
				if !o.positionsOf(ctx, n, f, yield) {
					return
				}
			}
		}
	}
}

// positionsOf yields the positions of a shard, and reports whether the list goes on.
func (o *Operator) positionsOf(ctx context.Context, n int, f InboxPositionFilter, yield func(InboxPosition, error) bool) bool {
	for cursor := uint64(0); ; {
		page, next, err := o.scripts.Positions(ctx, o.scripts.Shard(n), cursor)
		if err != nil {
			return yield(InboxPosition{}, fmt.Errorf("admin: inbox positions: %w", err)) && false
		}
		for _, p := range page {
			if f.matches(p) && !yield(newInboxPosition(n, p), nil) {
				return false
			}
		}
		if cursor = next; cursor == 0 {
			return true
		}
	}
}

func newInboxPosition(slot int, p shard.Position) InboxPosition {
	return InboxPosition{slot, p.Scope, p.Source, p.Partition, p.Offset, p.Epoch, p.Generation, p.Broken}
}

// Rewind sets the positions of a partition back, so that a redelivery applies messages again. Scope, Source and Reason are required.
type Rewind struct {
	Scope, Source, Partition string
	// Offset is that of the last message that stays applied, with all its digits. A position at or below it keeps its offset. If it is
	// empty, all messages count as new, of any epoch: use that if the source was created anew.
	Offset string
	// Reason is recorded in the audit.
	Reason string
	// Preview returns the changes without making them.
	Preview bool
}

// Rewound is the change of a Rewind in a shard.
type Rewound struct {
	Slot int `json:"slot"`
	// From and To are the offsets before and after. They are equal if only the generation changes.
	From string `json:"from"`
	To   string `json:"to"`
	// Broken reports that the position was broken. The rewind ends that.
	Broken bool `json:"broken"`
}

// ErrOwnersChange is returned by Rewind if owners of the partition begin in each of its rounds. Stop the consumers and repeat it.
var ErrOwnersChange = errors.New("admin: rewind: the partition changes its owner during the rewind; stop its consumers, and repeat the rewind")

// rewindRounds is how often a rewind begins again because an owner has begun meanwhile.
const rewindRounds = 5

// Rewind sets the positions of a partition back in every shard that has one, and returns them by slot. Owners that run lose the
// partition: their next commit returns luatx.ErrFenced. The source must deliver the messages again, which Rewind does not do: stop the
// consumers, rewind, set the source back (a consumer group's offsets), and start them. The first effects of the messages stay.
//
// Rewind is not atomic over shards. If it returns an error, repeat it. The audit of each shard records the act reposition.
func (o *Operator) Rewind(ctx context.Context, r Rewind) ([]Rewound, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	field := shard.PositionField(r.Scope, r.Source, r.Partition)
	before, err := o.positionIn(ctx, field)
	if err != nil || r.Preview {
		return r.changes(before), err
	}
	for range rewindRounds {
		generation, err := o.scripts.Generation(ctx, o.first(), field, true, highest(before))
		if err != nil {
			return nil, fmt.Errorf("admin: rewind: %w", err)
		}
		if err := o.rewind(ctx, r, field, generation); err != nil {
			return nil, err
		}
		present, err := o.scripts.Generation(ctx, o.first(), field, false, 0)
		if err != nil {
			return nil, fmt.Errorf("admin: rewind: %w", err)
		}
		if present == generation {
			return r.changes(before), nil
		}
	}
	return nil, ErrOwnersChange
}

func (r Rewind) validate() error {
	switch {
	case r.Scope == "" || r.Source == "":
		return errors.New("admin: rewind: Rewind.Scope or Source is empty; set them as InboxPositions lists them")
	case r.Reason == "" || len(r.Reason) > parts.MaxReason:
		return fmt.Errorf("admin: rewind: the reason has %d bytes; set a reason of 1 to %d bytes for the audit", len(r.Reason), parts.MaxReason)
	case strings.Trim(r.Offset, "0123456789") != "":
		return fmt.Errorf("admin: rewind: Rewind.Offset %.80q is not a number; use decimal digits, or nothing for the beginning", r.Offset)
	}
	return nil
}

// rewind sets the positions in every shard back.
func (o *Operator) rewind(ctx context.Context, r Rewind, field string, generation int64) error {
	there, err := o.positionIn(ctx, field)
	if err != nil {
		return err
	}
	why, name := r.Reason, strings.ReplaceAll(field, "\x00", " ")
	if r.Offset != "" {
		why += " (to " + r.Offset + ")"
	}
	for _, p := range there {
		answer, err := o.scripts.Reposition(ctx, o.scripts.Shard(p.Slot), o.act(why), field, name, generation, r.Offset)
		switch {
		case err != nil:
			return fmt.Errorf("admin: rewind in slot %d: %w", p.Slot, err)
		case answer == shard.ActState:
			return fmt.Errorf("admin: rewind in slot %d: offset %s has %d digits, but position %s has %d; use the same number of digits", p.Slot, r.Offset, len(r.Offset), p.Offset, len(p.Offset))
		}
	}
	return nil
}

// positionIn returns the positions of a field, by slot.
func (o *Operator) positionIn(ctx context.Context, field string) ([]InboxPosition, error) {
	all, err := inEachShard(ctx, o, field, o.scripts.PositionIn, newInboxPosition)
	if err != nil {
		return nil, fmt.Errorf("admin: rewind: %w", err)
	}
	return all, nil
}

// changes returns the changes of a rewind.
func (r Rewind) changes(before []InboxPosition) []Rewound {
	var all []Rewound
	for _, p := range before {
		all = append(all, Rewound{p.Slot, p.Offset, min(p.Offset, r.Offset), p.Broken})
	}
	return all
}

func highest(all []InboxPosition) (generation int64) {
	for _, p := range all {
		generation = max(generation, p.Generation)
	}
	return generation
}
