// Package ways has the ways to commit the writes of a message handler in Redis: the usual ones, those of luatx, and
// the limit of them all. Each way commits the same transaction. It checks that a message is new and remembers its id
// for 24 hours, sets three fields of a hash, increments a counter, stores an event for a relay, and acknowledges the
// message.
package ways

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/measure"
)

// The names of the ways.
const (
	ThreeStep    = "pipeline mode"
	Watch        = "WATCH"
	Luatx        = "luatx"
	SeparateAck  = "luatx, separate ack"
	StreamOutbox = "luatx, stream outbox"
	Guarded      = "luatx, guarded read"
	DumpUndo     = "luatx, undo by dump"
	Unbatched    = "luatx, unbatched"
	Batch        = "luatx, batches of 16"
	Batch64      = "luatx, batches of 64"
	General      = "luatx, general script"
	General16    = "luatx, general script, batches of 16"
	Handwritten  = "handwritten script"
	Pipeline     = "plain commands"
	Pipeline16   = "plain commands, batches of 16"
)

// retention is how long a message is known.
const retention = 24 * time.Hour

// makers has what each way is set up by, in the order of the report.
var makers = []struct {
	name  string
	setup func(*place, measure.Cell) (*measure.Running, error)
}{
	{ThreeStep, threeStep},
	{Watch, watch},
	{Luatx, fused},
	{SeparateAck, separateAck},
	{StreamOutbox, streamOutbox},
	{Guarded, guarded},
	{DumpUndo, dumpUndo},
	{Unbatched, unbatched},
	{Batch, batch(BatchSize)},
	{Batch64, batch(4 * BatchSize)},
	{General, general(1)},
	{General16, general(BatchSize)},
	{Handwritten, handwritten},
	{Pipeline, pipeline},
	{Pipeline16, pipeline16},
}

// Names are all ways, in the order of the report: first the base of the ratios.
func Names() []string {
	names := make([]string, len(makers))
	for i, m := range makers {
		names[i] = m.name
	}
	return names
}

// Commit returns the ways of the given names, all where there is none. The caller closes the client. The keys that
// they write begin with the cell's prefix and a dash, and remain.
func Commit(client redis.UniversalClient, names ...string) []measure.Way {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	var all []measure.Way
	for i, m := range makers {
		if len(names) > 0 && !wanted[m.name] {
			continue
		}
		all = append(all, measure.Way{Name: m.name, Setup: func(_ context.Context, c measure.Cell) (*measure.Running, error) {
			p, err := newPlace(client, c, namespace(c, i))
			if err != nil {
				return nil, err
			}
			return m.setup(p, c)
		}})
	}
	return all
}

// namespace begins the keys of a way.
func namespace(c measure.Cell, way int) string { return fmt.Sprintf("%s-%d", c.Prefix, way) }
