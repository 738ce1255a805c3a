package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/luatx/luatx/internal/shard"
)

// Export writes the parked events that a filter selects as lines of JSON with slot, id, state, time of parking, attempts, history
// and body; see docs/operations.md. It changes nothing and returns the number of written events.
func (s *Store) Export(ctx context.Context, w io.Writer, f Filter) (int, error) {
	n := 0
	for e, err := range s.Parked(ctx, f) {
		if err != nil && e.ID == "" {
			return n, err
		}
		l, err := newLine(e) // a body that cannot be decoded is written unchanged
		if err != nil {
			return n, err
		}
		text, err := l.encode()
		if err != nil {
			return n, fmt.Errorf("outbox: export: event %q of slot %d: %w", e.ID, e.Slot, err)
		}
		if _, err := w.Write(text); err != nil {
			return n, fmt.Errorf("outbox: export: %w", err)
		}
		n++
	}
	return n, nil
}

// ImportResult is the result of Import.
type ImportResult struct {
	// Operation is the id of the operation in the audit.
	Operation string
	// Read is the number of lines. Imported is the number of them that became parked events.
	Read, Imported int
	// Skipped counts the other lines by outcome: Known, Conflicting, or Full.
	Skipped map[Outcome]int
}

const (
	importBatch = 100
	importBytes = 1 << 20
)

// Import adds events that Export wrote as parked events to the shards that the lines name. Lines written by hand may name the
// aggregate instead. Import is idempotent by id: it does not change an event that the shard has in any state. An event with an
// ordering key goes to the end of its lane and blocks the events behind it. An error names the line, and the result states what
// was done before. The store must have an operator; see As.
func (s *Store) Import(ctx context.Context, r io.Reader) (ImportResult, error) {
	o, err := s.begin("import")
	if err != nil {
		return ImportResult{}, err
	}
	i := importing{operation: o, result: ImportResult{Operation: o.act.Operation, Skipped: map[Outcome]int{}}, slots: map[int]bool{}}
	for _, n := range s.keyspace.Slots() {
		i.slots[n] = true
	}
	decoder := json.NewDecoder(r)
	for number := 1; ; number++ {
		var l line
		err := decoder.Decode(&l)
		if errors.Is(err, io.EOF) {
			return i.result, i.flush(ctx)
		}
		if err == nil {
			i.result.Read++
			err = i.add(ctx, l)
		}
		if failed, storage := errors.AsType[*StorageError](err); storage {
			return i.result, failed
		}
		if err != nil {
			err = fmt.Errorf("outbox: import: line %d: %w", number, err)
			return i.result, errors.Join(err, i.flush(ctx))
		}
	}
}

// importing collects events of one slot and imports them in batches.
type importing struct {
	*operation

	result ImportResult
	slots  map[int]bool // all slots of the keyspace
	slot   int
	batch  []shard.Imported
	size   int
}

func (i *importing) add(ctx context.Context, l line) error {
	n, err := l.place(i.store, i.slots)
	if err != nil {
		return err
	}
	e, err := l.event(i.store.transactor.Config().OutboxBytes)
	if err != nil {
		return err
	}
	if n != i.slot || len(i.batch) == importBatch || i.size+len(e.Body) > importBytes {
		if err := i.flush(ctx); err != nil {
			return err
		}
	}
	i.slot, i.size, i.batch = n, i.size+len(e.Body), append(i.batch, e)
	return nil
}

func (i *importing) flush(ctx context.Context) error {
	if len(i.batch) == 0 {
		return nil
	}
	ctx, cancel := i.store.bounded(ctx)
	defer cancel()
	letters, err := i.store.scripts.Import(ctx, i.store.scripts.Shard(i.slot), i.next(), i.batch)
	if err != nil {
		return storageError("import", i.slot, err)
	}
	for _, letter := range []byte(letters) {
		if letter == shard.ActDone {
			i.result.Imported++
		} else {
			i.result.Skipped[outcomes[letter]]++
		}
	}
	i.batch, i.size = nil, 0
	return nil
}
