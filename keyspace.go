package luatx

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/slot"
)

// maxID is the longest aggregate id or key part, in bytes.
const maxID = 256

// A Keyspace maps the id of an aggregate to a tag: the text in the {…} of its keys, which decides their slot.
// All keys of a transaction share one tag's slot. The zero value gives every aggregate a tag of its own, as
// OwnTags does.
//
// The same Keyspace builds the keys outside of transactions, and in every service that touches them. Changing
// the number of partitions moves most aggregates to other slots: a shard refuses a Transactor whose keyspace is
// another than the one it was written with.
type Keyspace struct {
	partitions int
	prefix     string
}

// OwnTags gives every aggregate a tag of its own: keys read {order-17}:lines. Aggregates spread over all slots.
func OwnTags() Keyspace { return Keyspace{} }

// Partitions maps aggregates to n tags, from 1 to 16,384, that spread evenly over the slots: keys read
// {1bz}:order-17:lines. An input stream for each tag then shares the slot with the business keys, and its
// acknowledgement commits with them.
func Partitions(n int) Keyspace { return Keyspace{partitions: n} }

// WithPrefix returns the keyspace with a prefix before each key: shop:{1bz}:order-17:lines.
func (k Keyspace) WithPrefix(prefix string) Keyspace {
	k.prefix = prefix
	return k
}

// Tag returns the tag of an aggregate. It refuses an empty id, one of more than 256 bytes and one that is not
// UTF-8.
func (k Keyspace) Tag(aggregate string) (string, error) {
	if err := checkID(aggregate); err != nil {
		return "", fmt.Errorf("luatx: aggregate id %.40q: %w", aggregate, err)
	}
	if k.partitions == 0 {
		return escape(aggregate), nil
	}
	return k.partitionTag(slot.OfTag(aggregate) * k.partitions / slot.Count), nil
}

// partitionTag is a text of the slot in the middle of the partition's share.
func (k Keyspace) partitionTag(i int) string {
	return slot.Text((2*i + 1) * slot.Count / (2 * k.partitions))
}

// Key returns a key of an aggregate: its tag, its id and the parts, joined by colons. Characters that would
// change the key's meaning ({ } : % and control characters) are percent-encoded in id and parts.
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

// Tags returns the tags of all partitions, in order; none for own tags, whose number is open.
func (k Keyspace) Tags() []string {
	tags := make([]string, max(k.partitions, 0))
	for i := range tags {
		tags[i] = k.partitionTag(i)
	}
	return tags
}

// Slots returns the slots that a shard can live in: one a partition, or every slot for own tags.
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
		return fmt.Errorf("luatx: Config.Keyspace: %d partitions: use 1 to %d, or OwnTags", k.partitions, slot.Count)
	}
	if strings.ContainsAny(k.prefix, "{}") {
		return fmt.Errorf("luatx: Config.Keyspace: the prefix %q holds a brace, which would hide the tag: leave it out", k.prefix)
	}
	return nil
}

// identity is what a shard is held against.
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

// escape percent-encodes what would change the meaning of a key.
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

// tagIn returns the tag of a key, where it has one.
func tagIn(key string) (string, bool) {
	_, after, ok := strings.Cut(key, "{")
	if !ok {
		return "", false
	}
	tag, _, ok := strings.Cut(after, "}")
	return tag, ok && tag != ""
}
