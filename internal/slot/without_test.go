package slot_test

import (
	"testing"

	"github.com/luatx/luatx/internal/slot"
)

func TestWithout(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"orders": "orders", "{17}:orders": "orders", "shop:{17}:orders": "shop:orders", "shop:{17}": "shop:", "{a}b": "b",
		"open{": "open{", "a{b}c:d": "ac:d", "": "", "{}:x": "{}:x", "a:{b}::c": "a::c",
	} {
		if got := slot.Without(key); got != want {
			t.Errorf("Without(%q) is %q, want %q", key, got, want)
		}
	}
}
