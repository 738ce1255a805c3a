package redistest

import (
	"testing"

	"github.com/luatx/luatx/internal/test/respproxy"
)

// Proxy starts a fault-injecting proxy before the server at target, host:port; it ends with the test.
func Proxy(t testing.TB, target string) *respproxy.Proxy {
	t.Helper()
	p, err := respproxy.New(target)
	Must(t, err)
	return closed(t, p)
}
