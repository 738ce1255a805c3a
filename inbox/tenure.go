package inbox

import (
	"context"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/flight"
	"github.com/luatx/luatx/message"
)

// mintTimeout bounds the request for a generation. The message is delivered again.
const mintTimeout = 5 * time.Second

// tenure is the state that the inbox keeps of a message.Tenure for one position.
type tenure struct {
	field   string
	flights flight.Group

	mu         sync.Mutex // guards the fields below
	minted     bool       // the generation is known
	generation int64
	attempts   map[string]int // failures by offset
	passed     string         // highest offset that a commit of this tenure has moved the position to, or found it at
}

// tenureKey is the key under which a message.Tenure holds a tenure.
type tenureKey struct{ namespace, field string }

// tenureOf returns the tenure for the position of a field.
func tenureOf(of *message.Tenure, namespace, field string) *tenure {
	known, _ := of.Value(tenureKey{namespace, field}, func() any { return &tenure{field: field} }).(*tenure)
	return known
}

// generationBy returns the generation of the tenure. The first call gets it from mint; calls at the same time share that, and an error
// is not kept.
func (t *tenure) generationBy(ctx context.Context, mint func(ctx context.Context) (int64, error)) (int64, error) {
	if generation, minted := t.known(); minted {
		return generation, nil
	}
	err := t.flights.Do(ctx, nil, t.field, func(ctx context.Context, _ func(error)) error {
		if _, minted := t.known(); minted {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, mintTimeout)
		defer cancel()
		generation, err := mint(ctx)
		if err == nil {
			t.mu.Lock()
			t.generation, t.minted = generation, true
			t.mu.Unlock()
		}
		return err
	})
	generation, _ := t.known()
	return generation, err
}

func (t *tenure) known() (generation int64, minted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.generation, t.minted
}

// forget makes the next generationBy call mint again.
func (t *tenure) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.minted = false
}

// fail counts a failure of the message with an offset and returns the number of its failures.
func (t *tenure) fail(offset string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.attempts == nil {
		t.attempts = make(map[string]int)
	}
	t.attempts[offset]++
	return t.attempts[offset]
}

// pass notes that the position has reached an offset, and forgets the failures of its message.
func (t *tenure) pass(offset string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.attempts, offset)
	t.passed = max(t.passed, offset)
}

// before returns the offset that the position has reached in this tenure, or an empty one if that is not below an offset.
func (t *tenure) before(offset string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.passed < offset {
		return t.passed
	}
	return ""
}
