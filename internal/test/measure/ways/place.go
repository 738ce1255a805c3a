package ways

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/measure"
)

const (
	group    = "g"
	consumer = "c"
	// BatchSize is the transactions of a batch, and how many inputs in a row are of one tag: as they are where a consumer
	// reads a stream in batches.
	BatchSize = 16
	// chunk is how many commands preparing sends at once.
	chunk = 500
)

// place is where one way works in one cell: keys of its own, under each tag an input stream, a hash, a counter and
// what takes the events.
type place struct {
	client redis.UniversalClient
	name   string // begins every key; luatx' namespace
	tags   []tag
	body   string // of an event
	inputs []input
	first  int      // the tag of the first input of a round: rounds go on where the last one ended
	waits  []func() // each returns when its Transactor does nothing in the background any more
}

// tag holds the keys of one tag.
type tag struct {
	text                        string
	in, hash, counter, out, ids string
	events                      []string // where events wait
	bodies                      string   // the index of large bodies, each of which has a key; empty: the way has none
}

// input is a message that is pending for the consumer.
type input struct {
	*tag
	entry string
}

// newPlace spreads the cell's tags evenly over the slots.
func newPlace(client redis.UniversalClient, c measure.Cell, name string) (*place, error) {
	p := &place{client: client, name: name, body: string(slices.Repeat([]byte{'x'}, c.Payload))}
	keys := p.keyspace()
	for _, text := range luatx.Partitions(c.Tags).Tags() {
		key := func(part string) string { return keys.TagKey(text, part) }
		p.tags = append(p.tags, tag{
			text: text, in: key("in"), hash: key("hash"), counter: key("counter"), out: key("out"), ids: key("ids"),
			events: []string{key("out")},
		})
	}
	if len(p.tags) != c.Tags {
		return nil, fmt.Errorf("found %d tags, want %d", len(p.tags), c.Tags)
	}
	return p, nil
}

// keyspace gives every tag its keys. A tag is its own aggregate.
func (p *place) keyspace() luatx.Keyspace { return luatx.OwnTags().WithPrefix(p.name) }

// prepare puts n messages into the input streams and reads them, so that they are pending for the consumer; the events
// of the round before are removed.
func (p *place) prepare(ctx context.Context, n int) error {
	if err := p.clear(ctx); err != nil {
		return err
	}
	p.inputs = slices.Grow(p.inputs[:0], n)[:n]
	each := make([][]int, len(p.tags)) // the inputs of each tag
	for i := range n {
		at := (p.first + i/BatchSize) % len(p.tags)
		each[at] = append(each[at], i)
	}
	p.first = (p.first + n/BatchSize) % len(p.tags)
	f := feed{pipe: p.client.Pipeline()}
	for at := range p.tags {
		for part := range slices.Chunk(each[at], chunk) {
			f.add(ctx, p, &p.tags[at], part)
			if f.pipe.Len() >= chunk {
				if err := f.send(ctx); err != nil {
					return err
				}
			}
		}
	}
	return f.send(ctx)
}

// clear removes the inputs and the events of the last round. The stream itself stays, or it would give ids again.
func (p *place) clear(ctx context.Context) error {
	if err := p.clearBodies(ctx); err != nil {
		return err
	}
	pipe := p.client.Pipeline()
	for _, t := range p.tags {
		pipe.XGroupCreateMkStream(ctx, t.in, group, "$")
		pipe.XTrimMaxLen(ctx, t.in, 0)
		pipe.Unlink(ctx, t.events...)
	}
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
			return err
		}
	}
	if redis.HasErrorPrefix(err, "BUSYGROUP") {
		return nil
	}
	return err
}

// clearBodies removes the large bodies of all indexes, and the indexes.
func (p *place) clearBodies(ctx context.Context) error {
	pipe := p.client.Pipeline()
	names := make(map[string]*redis.StringSliceCmd)
	for _, t := range p.tags {
		if t.bodies != "" {
			names[t.bodies] = pipe.HKeys(ctx, t.bodies)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	for index, all := range names {
		for _, name := range all.Val() {
			pipe.Unlink(ctx, strings.TrimSuffix(index, "bodies")+"body:"+name)
		}
		if len(all.Val()) > 0 {
			pipe.Unlink(ctx, index)
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// feed adds messages, and reads them, in few round trips.
type feed struct {
	pipe redis.Pipeliner
	done []func() error // to be called when the pipeline is answered
}

// add adds a message for each of the inputs of a tag.
func (f *feed) add(ctx context.Context, p *place, t *tag, inputs []int) {
	added := make([]*redis.StringCmd, len(inputs))
	for i := range inputs {
		added[i] = f.pipe.XAdd(ctx, &redis.XAddArgs{Stream: t.in, Values: []any{"data", "1"}})
	}
	read := f.pipe.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: consumer, Streams: []string{t.in, ">"}, Count: int64(len(inputs)), Block: -1,
	})
	f.done = append(f.done, func() error {
		if got := len(read.Val()[0].Messages); got != len(inputs) {
			return fmt.Errorf("read %d of %d messages from %s", got, len(inputs), t.in)
		}
		for i, n := range inputs {
			p.inputs[n] = input{t, added[i].Val()}
		}
		return nil
	})
}

func (f *feed) send(ctx context.Context) error {
	if _, err := f.pipe.Exec(ctx); err != nil {
		return err
	}
	for _, done := range f.done {
		if err := done(); err != nil {
			return err
		}
	}
	f.done = nil
	return nil
}

// running is a way of one call after the other in this place.
func (p *place) running(op func(ctx context.Context, worker int, in input) error) *measure.Running {
	return &measure.Running{
		Prepare: p.prepare,
		Op:      func(ctx context.Context, worker, i int) error { return op(ctx, worker, p.inputs[i]) },
		CPU:     measure.ServerCPU(p.client),
		Close: func() {
			for _, wait := range p.waits {
				wait()
			}
		},
	}
}

// batches is a way that does so many inputs in one call.
func (p *place) batches(size int, op func(ctx context.Context, inputs []input) error) *measure.Running {
	r := p.running(nil)
	r.Batch = size
	r.Op = func(ctx context.Context, _, i int) error { return op(ctx, p.inputs[i:i+size]) }
	return r
}
