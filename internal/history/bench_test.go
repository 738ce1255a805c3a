package history_test

import (
	"testing"

	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/settle"
)

// BenchmarkCounter counts an event, as relays do for each event that they settle.
func BenchmarkCounter(b *testing.B) {
	var c history.Counter
	b.ReportAllocs()
	for b.Loop() {
		c.Add("bank", settle.Sent, "")
	}
}
