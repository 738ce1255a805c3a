package group

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// deadFields is the number of fields that internal/lua/deadletter.lua writes before those of the entry.
	deadFields = 8
	// fieldPacked is the first field of a dead letter whose entry has more fields than a script can write. Its value
	// contains all names and values of the entry, in their order; see internal/lua/deadletter.lua.
	fieldPacked = "dead-packed"
	// fieldReason is the first field of all other dead letters.
	fieldReason = "dead-reason"
)

// Dead is an entry of a dead-letter stream. If Foreign is set, it is not a dead letter, and only the ID is known.
type Dead struct {
	ID                                     string
	Foreign                                bool
	Stream, Entry, Group, Consumer, Reason string
	Deliveries                             int64
	First, Last                            time.Time
	// Fields are the names and values of the original entry, in their order.
	Fields []string
	// Packed reports whether the entry has more fields than a script can write.
	Packed bool
}

// ReadDead reads up to count entries of a dead-letter stream, with ids between from and to.
func ReadDead(ctx context.Context, client redis.UniversalClient, key, from, to string, count int) ([]Dead, error) {
	cmd := redis.NewSliceCmd(ctx, "xrange", key, from, to, "count", count) // XRange of the client loses the order of the fields
	cmd.SetFirstKeyPos(1)
	if err := client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	out := make([]Dead, len(cmd.Val()))
	for i, item := range cmd.Val() {
		pair, _ := item.([]any)
		if len(pair) != 2 {
			return nil, fmt.Errorf("unexpected entry %.100v", item)
		}
		list, _ := pair[1].([]any)
		fields := make([]string, len(list))
		for j, v := range list {
			fields[j] = fmt.Sprint(v)
		}
		out[i] = parseDead(fmt.Sprint(pair[0]), fields)
	}
	return out, nil
}

// parseDead parses the fields of an entry.
func parseDead(id string, fields []string) Dead {
	d := Dead{ID: id}
	if len(fields) > 2 && fields[0] == fieldPacked {
		texts, ok := unpackTexts(fields[1])
		if !ok {
			return Dead{ID: id, Foreign: true}
		}
		d.Packed, fields = true, append(slices.Clone(fields[2:]), texts...)
	}
	if len(fields) < 2*deadFields || fields[0] != fieldReason {
		return Dead{ID: id, Foreign: true}
	}
	own := make(map[string]string, deadFields)
	for pair := range slices.Chunk(fields[:2*deadFields], 2) {
		own[pair[0]] = pair[1]
	}
	at := func(field string) time.Time {
		ms, _ := strconv.ParseInt(own[field], 10, 64)
		return time.UnixMilli(ms)
	}
	d.Stream, d.Entry, d.Group = own["dead-stream"], own["dead-entry"], own["dead-group"]
	d.Consumer, d.Reason = own["dead-consumer"], own[fieldReason]
	d.Deliveries, _ = strconv.ParseInt(own["dead-deliveries"], 10, 64)
	d.First, d.Last, d.Fields = at("dead-first"), at("dead-last"), fields[2*deadFields:]
	return d
}

// Values returns the fields as a map, as the client returns the fields of an entry.
func (d Dead) Values() map[string]any {
	values := make(map[string]any, len(d.Fields)/2)
	for i := 0; i+1 < len(d.Fields); i += 2 {
		values[d.Fields[i]] = d.Fields[i+1]
	}
	return values
}

// unpackTexts returns the texts that internal/lua/deadletter.lua has packed. Each text follows its length and a colon.
func unpackTexts(packed string) (texts []string, ok bool) {
	for packed != "" {
		length, rest, found := strings.Cut(packed, ":")
		n, err := strconv.Atoi(length)
		if !found || err != nil || n < 0 || n > len(rest) {
			return nil, false
		}
		texts, packed = append(texts, rest[:n]), rest[n:]
	}
	return texts, len(texts) > 0 && len(texts)%2 == 0
}

// mostFields is the number of names and values above which internal/lua/deadletter.lua packs a dead letter.
const mostFields = 2000

// Write returns the names and values of the stream entry for this dead letter. It packs the original fields if there
// are too many.
func (d Dead) Write() []string {
	head := []string{
		fieldReason, Reason(d.Reason), "dead-stream", d.Stream, "dead-entry", d.Entry, "dead-group", d.Group, "dead-consumer", d.Consumer,
		"dead-deliveries", strconv.FormatInt(d.Deliveries, 10), "dead-first", strconv.FormatInt(d.First.UnixMilli(), 10),
		"dead-last", strconv.FormatInt(d.Last.UnixMilli(), 10),
	}
	if len(d.Fields) <= mostFields {
		return append(head, d.Fields...)
	}
	var packed strings.Builder
	for _, text := range d.Fields {
		packed.WriteString(strconv.Itoa(len(text)) + ":" + text)
	}
	return append([]string{fieldPacked, packed.String()}, head...)
}

// EntryKey is the key of the in-process value that holds the Entry of a message.
type EntryKey struct{}

// Entry is an entry of a stream before it is decoded.
type Entry interface {
	// Fields returns the names and values of the entry, in their order.
	Fields() []string
	// Deliveries returns how often the entry was delivered to the group.
	Deliveries() int64
}
