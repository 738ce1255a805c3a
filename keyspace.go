package luatx

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/slot"
)

// maxID is the maximum size of an aggregate id or a key part, in bytes.
const maxID = 256

// A Keyspace maps the id of an aggregate to a tag: the text in the {…} of its keys, which determines their slot. All keys of a
// transaction share the slot of one tag. The zero value gives each aggregate its own tag, like OwnTags.
//
// Use the same Keyspace outside of transactions, and in every service that uses the keys. Changing the number of partitions moves
// most aggregates to other slots, so a shard rejects a Transactor whose keyspace differs from the one that it was written with.
type Keyspace struct {
	partitions int
	prefix     string
}

// OwnTags returns a Keyspace that gives each aggregate its own tag, as in {order-17}:lines. Aggregates spread over all slots.
func OwnTags() Keyspace { return Keyspace{} }

// Partitions returns a Keyspace that maps aggregates to n tags, from 1 to 16,384, as in {1bz}:order-17:lines. The tags spread
// evenly over the slots. With one input stream per tag, the stream shares the slot of the business keys, so that its
// acknowledgement commits with them.
func Partitions(n int) Keyspace { return Keyspace{partitions: n} }

// WithPrefix returns a copy of the keyspace that puts a prefix before each key, as in shop:{1bz}:order-17:lines.
func (k Keyspace) WithPrefix(prefix string) Keyspace {
	k.prefix = prefix
	return k
}

// Tag returns the tag of an aggregate. It returns an error if the id is empty, longer than 256 bytes, or not UTF-8.
func (k Keyspace) Tag(aggregate string) (string, error) {
	if err := checkID(aggregate); err != nil {
		return "", fmt.Errorf("luatx: aggregate id %.40q: %w", aggregate, err)
	}
	if k.partitions == 0 {
		return escape(aggregate), nil
	}
	return k.partitionTag(slot.OfTag(aggregate) * k.partitions / slot.Count), nil
}

// partitionTag returns a text that hashes to the slot in the middle of the partition's range.
func (k Keyspace) partitionTag(i int) string {
	return slot.Text((2*i + 1) * slot.Count / (2 * k.partitions))
}

// Key returns a key of an aggregate: its tag, its id and the parts, joined by colons. With OwnTags, the id appears only as the
// tag. Characters in the id and the parts that would change the meaning of the key ({ } : % and control characters) are
// percent-encoded. Key returns an error if the id or a part is empty, longer than 256 bytes, or not UTF-8.
func (k Keyspace) Key(aggregate string, parts ...string) (string, error) {
	tag, err := k.Tag(aggregate)
	if err != nil {
		return "", err
	}
	for _, part := range parts {
		if err := checkID(part); err != nil {
			return "", fmt.Errorf("luatx: part %.40q of a key of aggregate %.40q: %w", part, aggregate, err)
		}
	}
	if k.partitions > 0 {
		parts = append([]string{aggregate}, parts...)
	}
	return k.TagKey(tag, parts...), nil
}

// TagKey returns a key that all aggregates of a tag share, such as the input stream of a partition.
func (k Keyspace) TagKey(tag string, parts ...string) string {
	size := len(k.prefix) + len(":{}") + len(tag)
	for _, part := range parts {
		size += len(":") + len(part)
	}
	var b strings.Builder
	b.Grow(size)
	if k.prefix != "" {
		b.WriteString(k.prefix)
		b.WriteByte(':')
	}
	b.WriteByte('{')
	b.WriteString(tag)
	b.WriteByte('}')
	for _, part := range parts {
		b.WriteByte(':')
		b.WriteString(escape(part))
	}
	return b.String()
}

// Tags returns the tags of all partitions in order. It returns none for OwnTags, whose number of tags is unlimited.
func (k Keyspace) Tags() []string {
	tags := make([]string, max(k.partitions, 0))
	for i := range tags {
		tags[i] = k.partitionTag(i)
	}
	return tags
}

// Slots returns the slots in which a shard can be: one for each partition, or all slots for OwnTags.
func (k Keyspace) Slots() []int {
	if k.partitions == 0 {
		all := make([]int, slot.Count)
		for i := range all {
			all[i] = i
		}
		return all
	}
	slots := make([]int, k.partitions)
	for i, tag := range k.Tags() {
		slots[i] = slot.OfTag(tag)
	}
	return slots
}

func (k Keyspace) validate() error {
	if k.partitions < 0 || k.partitions > slot.Count {
		return fmt.Errorf("luatx: Config.Keyspace: %d partitions; use 1 to %d, or OwnTags", k.partitions, slot.Count)
	}
	if strings.ContainsAny(k.prefix, "{}") {
		return fmt.Errorf("luatx: Config.Keyspace: the prefix %q holds a brace, which would hide the tag; leave it out", k.prefix)
	}
	return nil
}

// identity returns the text by which a shard recognizes the keyspace.
func (k Keyspace) identity() string {
	if k.partitions == 0 {
		return "own tags"
	}
	return fmt.Sprintf("%d partitions", k.partitions)
}

func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("is empty")
	case len(id) > maxID:
		return fmt.Errorf("has %d bytes, more than %d", len(id), maxID)
	case !utf8.ValidString(id):
		return errors.New("is not UTF-8")
	}
	return nil
}

// escape percent-encodes characters that would change the meaning of a key.
func escape(s string) string {
	const special = "{}:%"
	clean := true
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f || strings.IndexByte(special, s[i]) >= 0 {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == 0x7f || strings.IndexByte(special, c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// tagIn returns the tag of a key, if it has one.
func tagIn(key string) (string, bool) {
	_, after, ok := strings.Cut(key, "{")
	if !ok {
		return "", false
	}
	tag, _, ok := strings.Cut(after, "}")
	return tag, ok && tag != ""
}
