package commit_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/slot"
)

func TestKeyspaceKeys(t *testing.T) {
	t.Parallel()
	one := luatx.Partitions(1).Tags()[0]
	for _, c := range []struct {
		keyspace  luatx.Keyspace
		aggregate string
		parts     []string
		want      string
	}{
		{luatx.OwnTags(), "order-17", []string{"lines"}, "{order-17}:lines"},
		{luatx.Keyspace{}, "order-17", nil, "{order-17}"},
		{luatx.OwnTags().WithPrefix("shop"), "order-17", []string{"lines", "1"}, "shop:{order-17}:lines:1"},
		{luatx.Partitions(1), "order-17", []string{"lines"}, "{" + one + "}:order-17:lines"},
		{luatx.Partitions(1).WithPrefix("shop"), "order-17", nil, "shop:{" + one + "}:order-17"},
		{luatx.OwnTags(), "a{b}c:d%e\n", []string{"}"}, "{a%7Bb%7Dc%3Ad%25e%0A}:%7D"},
		{luatx.OwnTags(), "Müller", nil, "{Müller}"},
	} {
		if got, err := c.keyspace.Key(c.aggregate, c.parts...); err != nil || got != c.want {
			t.Errorf("Key(%q, %q) = %q, %v; want %q", c.aggregate, c.parts, got, err, c.want)
		}
	}
	for name, id := range map[string]string{"empty": "", "long": strings.Repeat("x", 257), "not UTF-8": "a\xff"} {
		if _, err := luatx.OwnTags().Key(id); err == nil {
			t.Errorf("an id that is %s was taken", name)
		}
		if _, err := luatx.OwnTags().Key("a", id); err == nil {
			t.Errorf("a part that is %s was taken", name)
		}
	}
}

// TestPartitionsSpread holds that partitions share the slots, and so the masters, evenly, and keep doing so:
// the tags name keys in users' servers.
func TestPartitionsSpread(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprint(luatx.Partitions(4).Tags()); got != "[5nw h85 7l1 b3k]" {
		t.Errorf("the tags of four partitions are %s now", got)
	}
	for _, n := range []int{1, 3, 16, 1000, slot.Count} {
		keyspace := luatx.Partitions(n)
		tags, slots := keyspace.Tags(), keyspace.Slots()
		seen := make(map[string]bool)
		for i, tag := range tags {
			seen[tag] = true
			if low, high := i*slot.Count/n, (i+1)*slot.Count/n; slots[i] < low || slots[i] >= max(high, low+1) || slot.OfTag(tag) != slots[i] {
				t.Errorf("partition %d of %d has slot %d", i, n, slots[i])
			}
		}
		if len(seen) != n {
			t.Errorf("%d partitions have %d tags", n, len(seen))
		}
		used := make(map[string]int)
		for i := range 20 * n {
			tag, err := keyspace.Tag(fmt.Sprint("order-", i))
			if err != nil || !seen[tag] {
				t.Fatalf("tag %q: %v", tag, err)
			}
			used[tag]++
		}
		if n <= 16 && len(used) != n {
			t.Errorf("%d of %d partitions are used", len(used), n)
		}
	}
	if n := len(luatx.OwnTags().Slots()); n != slot.Count {
		t.Errorf("own tags live in %d slots", n)
	}
}

// FuzzKey holds that whatever an aggregate is called, its keys have one tag and share its slot, that two aggregates never
// share a key, and that what a key was made of can be read from it.
func FuzzKey(f *testing.F) {
	f.Add("order-17", "order-18", "lines")
	f.Add("{", "}", "{}")
	f.Add("a:b", "a", "b")
	f.Add("%7B", "{", "x")
	f.Add("a\x00\x7f", "\n", strings.Repeat("ü", 129))
	f.Fuzz(func(t *testing.T, a, b, part string) {
		for _, keyspace := range []luatx.Keyspace{luatx.OwnTags(), luatx.Partitions(7).WithPrefix("p")} {
			key, err := keyspace.Key(a, part)
			if (err == nil) != (isID(a) && isID(part)) {
				t.Fatalf("Key(%q, %q): %v", a, part, err)
			}
			if err != nil {
				continue
			}
			tag, err := keyspace.Tag(a)
			if err != nil || slot.Of(key) != slot.OfTag(tag) || strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 {
				t.Errorf("key %q does not stand on tag %q alone (%v)", key, tag, err)
			}
			if other, err := keyspace.Key(b, part); err == nil && (other == key) != (a == b) {
				t.Errorf("aggregates %q and %q: keys %q and %q", a, b, key, other)
			}
			pieces := strings.Split(key, ":")
			for i, want := range map[int]string{len(pieces) - 2: a, len(pieces) - 1: part} {
				piece := strings.TrimSuffix(strings.TrimPrefix(pieces[i], "{"), "}")
				if got, err := url.PathUnescape(piece); err != nil || got != want || strings.ContainsAny(piece, "\x00\n\x1f\x7f") {
					t.Errorf("key %q: %q is %q again (%v), want %q", key, piece, got, err, want)
				}
			}
		}
	})
}

// isID reports whether the keyspace takes a text as an id or a part.
func isID(s string) bool { return s != "" && len(s) <= 256 && utf8.ValidString(s) }
