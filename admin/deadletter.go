package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

// ErrNotFound is the error for a stream or a dead letter that does not exist.
var ErrNotFound = errors.New("not found")

// DeadLetter is an entry that a consumer group could not process.
type DeadLetter struct {
	// ID is the id of its entry in the dead-letter stream. In the dead letters of a partitioned stream, an @ and the tag of the
	// partition follow, as in 1700000000000-0@pt3.
	ID string `json:"id"`
	// Stream, Entry and Group are the stream, id and group of the original entry. A trigger without a group has no Group, and
	// a channel has no Stream and no Entry.
	Stream string `json:"stream"`
	Entry  string `json:"entry"`
	Group  string `json:"group"`
	// Consumer is the consumer of the last delivery.
	Consumer string `json:"consumer"`
	// Type is the type of its message, if that can be decoded.
	Type string `json:"type"`
	// Reason is the text of the last error, cut to 1,024 bytes.
	Reason string `json:"reason"`
	// Deliveries is the number of deliveries to the group. First is the time of the first delivery that the last consumer knew
	// of, and Last that of the last delivery.
	Deliveries int64     `json:"deliveries"`
	First      time.Time `json:"first,omitzero"`
	Last       time.Time `json:"last,omitzero"`
	// At is when it became a dead letter, by the server's clock.
	At time.Time `json:"at,omitzero"`
	// Message is the message of the entry. It is nil if stream.Unmarshal cannot decode it.
	Message *message.RawMessage `json:"-"`
	// Fields are the names and values of the entry, in their order.
	Fields []string `json:"-"`

	source source
}

// newDeadLetter converts an entry. It returns stream.ErrNotDeadLetter if the entry is not a dead letter.
func newDeadLetter(from source, d group.Dead) (DeadLetter, error) {
	l := DeadLetter{ID: d.ID + from.suffix, At: pretty.Time(group.Time(d.ID)), source: from}
	if d.Foreign {
		return l, fmt.Errorf("admin: entry %s of %q: %w", d.ID, from.key, stream.ErrNotDeadLetter)
	}
	l.Stream, l.Entry, l.Group, l.Consumer, l.Reason, l.Deliveries = d.Stream, d.Entry, d.Group, d.Consumer, d.Reason, d.Deliveries
	l.First, l.Last, l.Fields = pretty.Time(d.First), pretty.Time(d.Last), d.Fields
	if msg, err := stream.Unmarshal(d.Entry, d.Values()); err == nil { // the error often is the reason of the dead letter
		l.Message, l.Type = msg, msg.Type()
	}
	return l, nil
}

// plainID returns the id of the entry in the dead-letter stream.
func (l DeadLetter) plainID() string { return strings.TrimSuffix(l.ID, l.source.suffix) }

// Data returns the data of the message. If the entry cannot be decoded, it returns the fields as a JSON array, in base64 if some are
// not UTF-8.
func (l DeadLetter) Data() []byte {
	if l.Message != nil {
		return l.Message.Data
	}
	texts, bytes := textsOrBytes(l.Fields)
	var list any = texts
	if bytes != nil {
		list = bytes
	}
	data, _ := json.Marshal(list) // texts
	return data
}

// DeadLetterFilter selects the dead letters that match everything that is set. The zero value selects all.
type DeadLetterFilter struct {
	// IDs are the ids of dead letters.
	IDs []string
	// Text is part of the reason.
	Text string
	// Group is the consumer group of the original entry.
	Group string
	// Type is the type of the messages.
	Type string
	// Since leaves out entries that became dead letters before it, by the server's clock.
	Since time.Time
	// After starts the list after the dead letter with this ID, which need not exist.
	After string
}

// String describes the filter for the audit.
func (f DeadLetterFilter) String() string {
	var set []string
	if len(f.IDs) > 0 {
		set = append(set, fmt.Sprintf("%d ids", len(f.IDs)))
	}
	for _, field := range [][2]string{{"text", f.Text}, {"group", f.Group}, {"type", f.Type}} {
		if field[1] != "" {
			set = append(set, fmt.Sprintf("%s=%q", field[0], field[1]))
		}
	}
	if !f.Since.IsZero() {
		set = append(set, "since="+f.Since.UTC().Format(time.RFC3339))
	}
	return cmp.Or(strings.Join(set, " "), "all")
}

// Validate returns an error for an id that no dead letter can have.
func (f DeadLetterFilter) Validate() error {
	ids := f.IDs
	if f.After != "" {
		ids = append(slices.Clone(ids), f.After)
	}
	for _, id := range ids {
		if plain, _, _ := strings.Cut(id, "@"); !group.IsID(plain) {
			return fmt.Errorf("admin: %.80q is not the id of a dead letter; use an id of the list, such as 1700000000000-0", id)
		}
	}
	return nil
}

// matches checks everything that a listing does not.
func (f DeadLetterFilter) matches(l DeadLetter) bool {
	return (f.Text == "" || strings.Contains(l.Reason, f.Text)) && (f.Group == "" || l.Group == f.Group) &&
		(f.Type == "" || l.Type == f.Type) && !l.At.Before(f.Since)
}

// DeadLetters are the dead letters of a stream. Retry and Discard act on them, Export and Import keep copies. It is safe for
// concurrent use.
type DeadLetters struct {
	operator *Operator
	name     string
}

// DeadLetters returns the dead letters of a stream. The name is the key of the stream, or the name of a partitioned stream of the
// Transactor's keyspace, for the dead letters of all its partitions. If a dead-letter stream has another key than
// stream.DeadLetterKey returns, that key is the name. DeadLetters does no I/O; the methods of the result fail with ErrNotFound if
// nothing has the name.
func (o *Operator) DeadLetters(name string) *DeadLetters { return &DeadLetters{o, name} }

// source is a dead-letter stream.
type source struct {
	key string
	// stream is the origin of its dead letters, or empty if each names its own.
	stream string
	number int    // number of the partition, or -1
	suffix string // suffix of the ids
	last   string // the id of the last dead letter, or empty
}

// sources returns the dead-letter streams with entries, and their last ids.
func (d *DeadLetters) sources(ctx context.Context) ([]source, error) {
	all, err := d.named(ctx)
	if err != nil {
		return nil, d.failed("find", err)
	}
	for chunk := range slices.Chunk(all, slotsAtOnce) {
		pipe := d.operator.core.Client.Pipeline()
		replies := make([]*redis.XMessageSliceCmd, len(chunk))
		for i, s := range chunk {
			replies[i] = pipe.XRevRangeN(ctx, s.key, "+", "-", 1)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, d.failed("find", err)
		}
		for i, reply := range replies {
			if last := reply.Val(); len(last) > 0 {
				chunk[i].last = last[0].ID
			}
		}
	}
	return slices.DeleteFunc(all, func(s source) bool { return s.last == "" }), nil
}

// named returns the dead-letter streams that the name stands for.
func (d *DeadLetters) named(ctx context.Context) ([]source, error) {
	client, key := d.operator.core.Client, stream.DeadLetterKey(d.name)
	here, err := client.Exists(ctx, d.name).Result()
	if err != nil {
		return nil, err
	}
	if here > 0 {
		first, err := group.ReadDead(ctx, client, d.name, "-", "+", 1)
		if err != nil {
			return nil, err
		}
		if len(first) > 0 && !first[0].Foreign {
			return []source{{key: d.name, number: -1}}, nil
		}
	}
	dead, err := client.Exists(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	if here+dead > 0 {
		return []source{{key: key, stream: d.name, number: -1}}, nil
	}
	partitions, err := d.operator.partitionsOf(ctx, d.name)
	if err == nil && len(partitions) == 0 {
		err = fmt.Errorf("%w: no stream, partitioned stream or dead-letter stream has this name", ErrNotFound)
	}
	all := make([]source, len(partitions))
	for i, tag := range d.operator.transactor.Keyspace().Tags()[:len(partitions)] {
		all[i] = source{key: stream.DeadLetterKey(partitions[i]), stream: partitions[i], number: i, suffix: "@" + tag}
	}
	return all, err
}

// failed converts an error of the server to a typed error.
func (d *DeadLetters) failed(op string, err error) error {
	_, typed := errors.AsType[*outbox.StorageError](err)
	switch {
	case err == nil || typed:
		return err
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("admin: dead letters of %q: %w", d.name, err)
	}
	return &outbox.StorageError{Op: op + " dead letters of " + strconv.Quote(d.name), Slot: -1, Err: err}
}

// List lists the dead letters that the filter selects, partition by partition, the oldest of each first. It is no snapshot. An
// entry that is not a dead letter comes with stream.ErrNotDeadLetter unless the filter asks for more than ids, and the list
// continues; another error ends it.
func (d *DeadLetters) List(ctx context.Context, f DeadLetterFilter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		sources, err := d.sources(ctx)
		if err = cmp.Or(f.Validate(), err); err != nil {
			yield(DeadLetter{}, err)
			return
		}
		d.list(ctx, sources, f, false, yield)
	}
}

// list lists the dead letters of sources. If settled is set, it leaves out those that were added after the sources were
// read.
func (d *DeadLetters) list(ctx context.Context, sources []source, f DeadLetterFilter, settled bool, yield func(DeadLetter, error) bool) {
	after, tag, _ := strings.Cut(f.After, "@")
	number := slices.Index(d.operator.transactor.Keyspace().Tags(), tag)
	if partitioned := len(sources) > 0 && sources[0].number >= 0; len(sources) > 0 && after != "" && (tag != "" && number < 0 || partitioned != (tag != "")) {
		yield(DeadLetter{}, fmt.Errorf("admin: DeadLetterFilter.After %q is not the id of a dead letter of %q; use an id of the list", f.After, d.name))
		return
	}
	for _, s := range sources {
		from := strconv.FormatInt(max(0, f.Since.UnixMilli()), 10)
		switch {
		case after == "" || s.number > number:
		case s.number < number:
			continue
		case group.Compare(after, from) >= 0:
			from = group.Behind(after)
		}
		for page, err := range d.pages(ctx, s, from, f.IDs) {
			if err != nil {
				yield(DeadLetter{}, d.failed("list", err))
				return
			}
			for _, raw := range page {
				if settled && group.Compare(raw.ID, s.last) > 0 {
					break
				}
				if l, err := newDeadLetter(s, raw); f.matches(l) && !yield(l, err) {
					return
				}
			}
		}
	}
}

// pages reads a dead-letter stream from an id on, or the entries with the given ids.
func (d *DeadLetters) pages(ctx context.Context, s source, from string, ids []string) iter.Seq2[[]group.Dead, error] {
	client := d.operator.core.Client
	return func(yield func([]group.Dead, error) bool) {
		if len(ids) == 0 {
			for {
				page, err := group.ReadDead(ctx, client, s.key, from, "+", group.Page)
				if !yield(page, err) || err != nil || len(page) < group.Page {
					return
				}
				from = group.Behind(page[len(page)-1].ID)
			}
		}
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
			plain, ours := strings.CutSuffix(id, s.suffix)
			if !ours || strings.Contains(plain, "@") || group.Compare(plain, from) < 0 {
				continue
			}
			if page, err := group.ReadDead(ctx, client, s.key, plain, plain, 1); !yield(page, err) || err != nil {
				return
			}
		}
	}
}

// Show returns the dead letter with an ID, or ErrNotFound.
func (d *DeadLetters) Show(ctx context.Context, id string) (DeadLetter, error) {
	for l, err := range d.List(ctx, DeadLetterFilter{IDs: []string{id}}) {
		return l, err
	}
	return DeadLetter{}, fmt.Errorf("admin: dead letter %q of %q: %w", id, d.name, ErrNotFound)
}
