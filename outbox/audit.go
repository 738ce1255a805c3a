package outbox

import (
	"container/heap"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// Record is one step of an operation on the events of one shard. The steps of an operation share its id.
type Record struct {
	Slot int
	// At is the time of the step by the server's clock.
	At time.Time
	// Operation is the id of the operation. Call is the number of the step within it.
	Operation string
	Call      int
	// Who is the operator; see Store.As. Act is rearm, discard, erase, replay, import, read, export, or one of Acts. Why is the reason or
	// the filter.
	Who, Act, Why string
	// Done is the number of changed events. Asked is the number of requested ones.
	Done, Asked int
	// IDs are the first 100 changed events.
	IDs []string
}

// auditPage is the number of records that are read from a shard at a time.
const auditPage = 50

// Audit lists the operations since a time over all shards, oldest first. Steps that changed nothing are not recorded. A shard
// keeps about its last 10,000 records.
func (s *Store) Audit(ctx context.Context, since time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		from := strconv.FormatInt(max(0, since.UnixMilli()), 10)
		var open sources[*trail]
		err := s.chunks(nil, func(slots []int) error {
			found, err := s.scripts.HasAudit(ctx, slots)
			if err != nil {
				return storageError("audit", -1, err)
			}
			for _, n := range found {
				t := &trail{slot: n, next: from}
				if err := t.fill(ctx, s.scripts); err != nil {
					return err
				}
				if len(t.page) > 0 {
					open = append(open, t)
				}
			}
			return nil
		})
		if err != nil {
			yield(Record{}, err)
			return
		}
		heap.Init(&open)
		for len(open) > 0 {
			t := open[0]
			record := t.page[0]
			if t.page = t.page[1:]; len(t.page) == 0 && t.more {
				err = t.fill(ctx, s.scripts)
			}
			if len(t.page) == 0 {
				heap.Pop(&open)
			} else {
				heap.Fix(&open, 0)
			}
			if !yield(record, nil) {
				return
			}
			if err != nil {
				yield(Record{}, err)
				return
			}
		}
	}
}

// trail is the audit stream of one shard, read page by page.
type trail struct {
	slot int
	page []Record
	next string // where the next page begins
	more bool
}

func (t *trail) head() (time.Time, int) { return t.page[0].At, t.slot }

func (t *trail) fill(ctx context.Context, scripts *shard.Scripts) error {
	entries, last, err := scripts.Audit(ctx, scripts.Shard(t.slot), t.next, auditPage)
	if err != nil {
		return storageError("audit", t.slot, err)
	}
	for _, e := range entries {
		t.page = append(t.page, Record(e))
	}
	if last != "" {
		t.next = behind(last)
	}
	t.more = len(entries) == auditPage
	return nil
}

// behind returns the lowest stream id that can follow the given one.
func behind(id string) string {
	ms, text, _ := strings.Cut(id, "-")
	sequence, _ := strconv.ParseUint(text, 10, 64)
	return ms + "-" + strconv.FormatUint(sequence+1, 10)
}

// String returns the record as a readable line.
func (r Record) String() string {
	return fmt.Sprintf("%s %s %s %d of %d in slot %d (%s %d): %s",
		r.At.UTC().Format(time.RFC3339), r.Who, r.Act, r.Done, r.Asked, r.Slot, r.Operation, r.Call, r.Why)
}
