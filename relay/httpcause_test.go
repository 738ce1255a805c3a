package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
)

// slow is an error of the network that may be a timeout.
type slow bool

func (slow) Error() string   { return "s3cret" }
func (s slow) Timeout() bool { return bool(s) }
func (slow) Temporary() bool { return false }

func TestErrorOfARequestNamesItsCauseAndNothingElse(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"dial tcp: refused":                          &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")},
		"tls: failed to verify certificate: unknown": &tls.CertificateVerificationError{Err: errors.New("unknown")},
		"context canceled":                           context.Canceled,
		"context deadline exceeded":                  context.DeadlineExceeded,
		http.ErrSchemeMismatch.Error():               fmt.Errorf("s3cret: %w", http.ErrSchemeMismatch),
		"unexpected EOF":                             io.ErrUnexpectedEOF,
		"EOF":                                        io.EOF,
		"timeout":                                    slow(true),
		"the receiver returned no valid HTTP response":  slow(false),
		"the receiver returned no valid HTTP response ": errors.New("s3cret"),
	} {
		err := &requestError{"shop", &url.Error{Op: "Post", URL: "http://shop/s3cret", Err: err}}
		if got := err.Error(); got != "relay: POST to shop: "+strings.TrimSpace(want) {
			t.Errorf("%q, want the cause %q", got, want)
		}
	}
}

func TestHeadersThatTheTransportRejectsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		fine        bool
	}{
		{"X-Token", "a b", true},
		{"X~!#$%&'*+-.^_`|", "a\tb", true},
		{"X-Token", "Grüße", true},
		{"X-Token", "\u0080", true},
		{"", "a", false},
		{"X Token", "a", false},
		{"X\tToken", "a", false},
		{"X\x7fToken", "a", false},
		{"X-Tökén", "a", false},
		{"X:Token", "a", false},
		{"X-Token", "a\nb", false},
		{"X-Token", "a\x1fb", false},
		{"X-Token", "a\x7fb", false},
	} {
		err := checkHeader(http.Header{c.name: {"fine", c.value}})
		if (err == nil) != c.fine || err != nil && classOf(err, "") != "header" {
			t.Errorf("%q: %q: %v", c.name, c.value, err)
		}
	}
}

// TestOnlyErrorsThatOneEventMayCauseSplitABatch checks it for all kinds of errors of a request.
func TestOnlyErrorsThatOneEventMayCauseSplitABatch(t *testing.T) {
	t.Parallel()
	status := func(n int) error { return &StatusError{Status: n} }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{message.Permanent(status(422)), true},
		{status(500), true},
		{status(501), true},
		{status(499), false},
		{status(404), false},
		{message.Permanent(Classify("malformed", errors.New("odd"))), true},
		{Classify("no_answer", io.EOF), true},
		{Unavailable(Classify("network", io.EOF)), false},
		{Classify("header", errors.New("odd")), false},
		{message.Permanent(Classify(deniedClass, ErrDeniedAddress)), false},
	} {
		if got := onesFault(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}

func TestTransportOfThePublisherBoundsWhatCanHang(t *testing.T) {
	t.Parallel()
	p, err := HTTP(HTTPConfig{URL: "http://shop"})
	if err != nil {
		t.Fatal(err)
	}
	own := p.own
	if own.TLSHandshakeTimeout != 5*time.Second || own.ResponseHeaderTimeout != 10*time.Second || own.IdleConnTimeout != 90*time.Second {
		t.Errorf("timeouts of %v, %v and %v", own.TLSHandshakeTimeout, own.ResponseHeaderTimeout, own.IdleConnTimeout)
	}
	if own.HTTP2.SendPingTimeout != 15*time.Second || own.HTTP2.PingTimeout != 5*time.Second {
		t.Errorf("pings after %v, for %v", own.HTTP2.SendPingTimeout, own.HTTP2.PingTimeout)
	}
	if own.MaxIdleConnsPerHost != 16 || own.MaxIdleConns != 100 || own.Proxy == nil {
		t.Errorf("%d connections to a host and %d in all stay open, with a proxy: %t", own.MaxIdleConnsPerHost, own.MaxIdleConns, own.Proxy != nil)
	}
}

func TestAddressesThatAreNotPublicAreDenied(t *testing.T) {
	t.Parallel()
	for address, fine := range map[string]bool{
		"8.8.8.8:80":               true,
		"[2606:4700::1]:443":       true,
		"[64:ff9b::8.8.8.8]:80":    true,
		"[2002:808:808::1]:80":     true,
		"[::ffff:8.8.8.8]:80":      true,
		"127.0.0.1:80":             false,
		"10.1.2.3:80":              false,
		"100.100.100.200:80":       false,
		"[64:ff9b::10.0.0.1]:80":   false,
		"[2002:a01:203::1]:80":     false,
		"[2002:7f00:1::1]:80":      false,
		"[fe80::1%eth0]:80":        false,
		"[::ffff:192.168.0.1]:80":  false,
		"[64:ff9b:1::8.8.8.8]:443": false,
		"[fec0::1]:443":            false,
		"no address":               false,
	} {
		if err := denyPrivate("tcp", address, nil); (err == nil) != fine || err != nil && !errors.Is(err, ErrDeniedAddress) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
