package relay_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/relay/cehttp"
)

func TestHTTPDenyPrivateChecksTheDialedAddress(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := receiver(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	at, err := url.Parse(server.URL)
	redistest.Must(t, err)
	for _, host := range []string{
		"127.0.0.1", "localhost", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200",
		"198.18.0.1", "240.0.0.1", "255.255.255.255", "224.0.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[fd00::1]",
		"[fe80::1]", "[64:ff9b::10.0.0.1]", "[2002:a00:1::1]", "[2001:0:1::1]",
	} {
		for _, mode := range []cehttp.Mode{cehttp.Structured, cehttp.Batched} {
			p := newHTTP(t, relay.HTTPConfig{
				URLFor:      func(*message.RawMessage) (string, error) { return "http://" + host + ":" + at.Port() + "/", nil },
				DenyPrivate: true, Mode: mode, Timeout: 2 * time.Second,
			})
			for _, err := range p.Publish(t.Context(), rawEvents(4)) {
				if err != nil && strings.Contains(err.Error(), "address family not supported") {
					continue // the machine has no IPv6
				}
				if !errors.Is(err, relay.ErrDeniedAddress) || fate(err) != "parked" || class(err) != "denied_address" {
					t.Errorf("%s: %s (%s): %v", host, fate(err), class(err), err)
				}
			}
		}
	}
	if n := requests.Load(); n > 0 {
		t.Errorf("%d requests reached a server on the loopback address", n)
	}
	if err := newHTTP(t, relay.HTTPConfig{URL: server.URL}).Publish(t.Context(), rawEvents(1))[0]; err != nil || requests.Load() != 1 {
		t.Errorf("without DenyPrivate: %v", err)
	}
	// These addresses are public, but no host has them.
	for _, host := range []string{"192.0.2.1", "[2001:db8::1]"} {
		p := newHTTP(t, relay.HTTPConfig{URL: "http://" + host, DenyPrivate: true, Timeout: 50 * time.Millisecond})
		if err := p.Publish(t.Context(), rawEvents(1))[0]; err == nil || errors.Is(err, relay.ErrDeniedAddress) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := relay.HTTP(relay.HTTPConfig{URL: server.URL, DenyPrivate: true, Client: http.DefaultClient}); err == nil {
		t.Error("DenyPrivate beside a Client is accepted")
	}
}
