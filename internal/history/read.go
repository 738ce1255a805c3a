package history

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Bucket holds the counts and measurements of an interval.
type Bucket struct {
	At time.Time // when the interval begins
	// Destinations contains the destinations that the interval names, and Others the sum of the others. The same
	// applies to Classes.
	Destinations map[string]Outcomes
	Others       Outcomes
	Classes      map[string]int64
	OtherClasses int64
	// Gauges is nil if no process measured.
	Gauges *Gauges
}

// bucketsAtOnce is the number of intervals that one pipeline reads.
const bucketsAtOnce = 256

// Read returns the intervals between two times, oldest first, including the intervals that contain these times. It
// omits intervals in which nothing was written.
func (h *History) Read(ctx context.Context, r Resolution, from, to time.Time) (all []Bucket, err error) {
	prefix := keyFine
	if r == Coarse() {
		prefix = keyCoarse
	}
	var numbers []int64
	for n := r.number(from); n <= r.number(to); n++ {
		numbers = append(numbers, n)
	}
	for chunk := range slices.Chunk(numbers, bucketsAtOnce) {
		pipe, replies := h.cfg.Client.Pipeline(), make([]*redis.MapStringStringCmd, len(chunk))
		for i, n := range chunk {
			replies[i] = pipe.HGetAll(ctx, h.key(prefix, n))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
		for i, reply := range replies {
			if fields := reply.Val(); len(fields) > 0 {
				all = append(all, bucketOf(r.begin(chunk[i]), fields))
			}
		}
	}
	return all, nil
}

// Now returns the time of the server.
func (h *History) Now(ctx context.Context) (time.Time, error) { return h.cfg.Client.Time(ctx).Result() }

func bucketOf(at time.Time, fields map[string]string) Bucket {
	b := Bucket{At: at, Destinations: map[string]Outcomes{}, Classes: map[string]int64{}}
	for field, text := range fields {
		kind, name, named := strings.Cut(field, ":")
		switch {
		case kind == destinationField && named:
			b.Destinations[name] = outcomesOf(text)
		case kind == destinationField:
			b.Others = outcomesOf(text)
		case kind == classField && named:
			b.Classes[name] = numberOf(text)
		case kind == classField:
			b.OtherClasses = numberOf(text)
		}
	}
	if _, measured := fields[fieldEvents]; measured {
		b.Gauges = &Gauges{
			Oldest: time.Duration(numberOf(fields[fieldOldest])) * time.Millisecond,
			Events: numberOf(fields[fieldEvents]), Bytes: numberOf(fields[fieldBytes]), Parked: numberOf(fields[fieldParked]),
			Blocked: numberOf(fields[fieldBlocked]), Full: numberOf(fields[fieldFull]), Enqueued: numberOf(fields[fieldEnqueued]),
		}
	}
	return b
}

func outcomesOf(text string) (o Outcomes) {
	into := []*int64{&o.Sent, &o.Failed, &o.Returned, &o.Parked}
	for i, word := range strings.Fields(text) {
		if i < len(into) {
			*into[i] = numberOf(word)
		}
	}
	return o
}

// numberOf parses a number, and returns 0 for any other text.
func numberOf(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
