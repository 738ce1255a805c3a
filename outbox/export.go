package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/luatx/luatx/internal/shard"
)

// Export writes the parked events that a filter means, each as a line of JSON: slot, id, state, when it was parked,
// attempts, history and body, as docs/operations.md describes. It changes nothing, and returns how many it wrote.
func (s *Store) Export(ctx context.Context, w io.Writer, f Filter) (int, error) {
	n := 0
	for e, err := range s.Parked(ctx, f) {
		if err != nil && e.ID == "" {
			return n, err
		}
		l, err := newLine(e) // a body that cannot be decoded is written as it is
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

// ImportResult is what Import has done.
type ImportResult struct {
	// Operation is its id in the audit.
	Operation string
	// Read is how many lines there were, Imported how many of them are parked events now.
	Read, Imported int
	// Skipped is how many were not, by what was found: Known, Conflicting, or Full.
	Skipped map[Outcome]int
}

const (
	importBatch = 100
	importBytes = 1 << 20
)

// Import takes in what Export wrote, as parked events, in the shards that the lines name; lines written by hand may name
// the aggregate instead. It is idempotent by id: what is known, in whatever state, stays as it is. An event with an
// ordering key goes to the end of its lane and blocks what comes behind it. Beside an error, which names the line, the
// result tells what was done before. The store must name who acts: see As.
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

// importing collects events of one slot until they are worth a script.
type importing struct {
	*operation

	result ImportResult
	slots  map[int]bool // of the keyspace
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
