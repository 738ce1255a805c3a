package slot_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestOfReturnsTheSlotOfTheClusterSpecification(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key  string
		want int
	}{
		{"123456789", 12739}, // the check value of the cluster specification: 0x31C3
		{"", 0},
		{"{user1000}.following", 3443},
		{"foo{}{bar}", 8363},    // an empty tag: the whole key counts
		{"foo{{bar}}zap", 4015}, // the first { to the next }
		{"foo{bar}{zap}", 5061},
		{"open{only", slot.OfTag("open{only")},
	} {
		assert.Equal(t, slot.Of(c.key), c.want, "Of(%q)", c.key)
	}
}

// TestTextIsFrozen checks the table of the tags in users' keys. A change would make all of these keys unreachable.
func TestTextIsFrozen(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	longest := 0
	for n := range slot.Count {
		text := slot.Text(n)
		if slot.OfTag(text) != n {
			t.Fatalf("Text(%d) = %q, which hashes to %d", n, text, slot.OfTag(text))
		}
		longest = max(longest, len(text))
		all.WriteString(text + "\n")
	}
	sum := sha256.Sum256([]byte(all.String()))
	if got, want := hex.EncodeToString(sum[:]), "310d5916719b3a0ad22a1c3725c8e111862ca55941e8ff28af8ce3a745e2b88c"; got != want {
		t.Errorf("the table has changed: sha256 %s, want %s", got, want)
	}
	if longest > 4 {
		t.Errorf("a text of %d characters is not short", longest)
	}
}

func FuzzOf(f *testing.F) {
	server := redistest.SharedCluster(f)
	client := server.Client(f)
	for _, seed := range []string{"", "a", "{a}b", "{}b", "{{a}}", "a{b", "}{", "ü{ö}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		want, err := client.ClusterKeySlot(context.Background(), key).Result()
		redistest.Must(t, err)
		assert.Equal(t, int64(slot.Of(key)), want, "Of(%q)", key)
	})
}
