package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/luatx/luatx/admin/httpapi"
)

func TestServerDisconnectsStalledClientsLaterThanTheTimeoutOfARequest(t *testing.T) {
	t.Parallel()
	handler := http.NewServeMux()
	for timeout, want := range map[time.Duration]time.Duration{0: 30 * time.Second, time.Minute: time.Minute} {
		s := httpapi.Config{Timeout: timeout}.Server(handler)
		if s.Handler != handler || s.ReadHeaderTimeout != 10*time.Second || s.ReadTimeout != want+10*time.Second || s.WriteTimeout != want+30*time.Second ||
			s.IdleTimeout != 2*time.Minute || s.MaxHeaderBytes != 64<<10 {
			t.Errorf("with the timeout %v the server is %+v", timeout, s)
		}
	}
}
