package slot_test

import (
	"testing"

	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
)

func TestWithoutRemovesTheTag(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"orders": "orders", "{17}:orders": "orders", "shop:{17}:orders": "shop:orders", "shop:{17}": "shop:", "{a}b": "b",
		"open{": "open{", "a{b}c:d": "ac:d", "": "", "{}:x": "{}:x", "a:{b}::c": "a::c",
	} {
		assert.Equal(t, slot.Without(key), want, "Without(%q)", key)
	}
}
