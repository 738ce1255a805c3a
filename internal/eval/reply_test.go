package eval

import (
	"fmt"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestTimeOfAReplyIsANumberOrAText(t *testing.T) {
	t.Parallel()
	for _, at := range []any{"1700000000123", int64(1_700_000_000_123)} {
		now, rows, err := Timed([]any{at, "a", "b"})
		assert.Equal(t, err, nil, "the error for %v", at)
		assert.Equal(t, now, time.UnixMilli(1_700_000_000_123), "the time %v", at)
		assert.Equal(t, fmt.Sprint(rows), "[a b]", "the other elements")
	}
	for _, reply := range []any{nil, "1", int64(1), []any{int64(1)}, []any{"soon", "a"}, []any{nil, "a"}} {
		if _, _, err := Timed(reply); err == nil {
			t.Errorf("no error for %v", reply)
		}
	}
}
