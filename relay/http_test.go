package relay_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/relay/cehttp"
)

func newHTTP(t testing.TB, cfg relay.HTTPConfig) *relay.HTTPPublisher {
	t.Helper()
	p, err := relay.HTTP(cfg)
	redistest.Must(t, err)
	t.Cleanup(p.Close)
	return p
}

// receiver returns a server with one handler.
func receiver(t testing.TB, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return server
}

func class(err error) string {
	var c relay.Classified
	if !errors.As(err, &c) {
		return ""
	}
	return c.Class()
}

// fate returns the name of what an error means.
func fate(err error) string {
	switch {
	case err == nil:
		return "sent"
	case errors.Is(err, relay.ErrLater):
		return "later"
	case errors.Is(err, relay.ErrUnavailable):
		return "unavailable"
	case message.IsPermanent(err):
		return "parked"
	}
	return "refused"
}

func TestHTTPStatusDecidesTheFateOfAnEvent(t *testing.T) {
	t.Parallel()
	tests := map[int]string{
		200: "sent", 202: "sent", 204: "sent", 299: "sent",
		301: "refused", 302: "refused", 303: "refused", 307: "refused", 308: "refused",
		400: "parked", 405: "parked", 409: "parked", 410: "parked", 413: "parked", 415: "parked", 422: "parked", 431: "parked",
		401: "refused", 403: "refused", 404: "refused", 407: "refused",
		408: "unavailable", 425: "unavailable", 429: "unavailable", 503: "unavailable",
		500: "refused", 501: "refused", 502: "refused", 504: "refused", 599: "refused",
	}
	for status, want := range tests {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
				if status >= 300 {
					_, _ = io.WriteString(w, "because\n\tof \xff"+strings.Repeat("x", 10_000))
				}
			})
			p := newHTTP(t, relay.HTTPConfig{URL: strings.Replace(server.URL, "http://", "http://user:password@", 1) + "/path?token=secret"})
			err := p.Publish(t.Context(), rawEvents(1))[0]
			if fate(err) != want || requests.Load() != 1 {
				t.Fatalf("%v after %d requests, want it %s after one", err, requests.Load(), want)
			}
			if err == nil {
				return
			}
			if got := class(err); got != fmt.Sprintf("http_%d", status) {
				t.Errorf("class %q", got)
			}
			if got, want := err.Error(), fmt.Sprintf("relay: POST to %s: %d", strings.TrimPrefix(server.URL, "http://"), status); strings.TrimSpace(strings.TrimSuffix(got, http.StatusText(status))) != want {
				t.Errorf("error is %q, want %q and the status's text", got, want)
			}
		})
	}
}

func TestHTTPErrorsKeepOnlyTheRedactedBody(t *testing.T) {
	t.Parallel()
	server := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"code":"E7",`+"\n\t"+`"card":"4111"}`+strings.Repeat("x", 10_000))
	})
	cfg := relay.HTTPConfig{URL: server.URL + "/hook/s3cret?token=s3cret"}
	for name, test := range map[string]struct {
		redact func(int, []byte) string
		want   string
	}{
		"nothing by default": {nil, ""},
		"a part":             {func(status int, _ []byte) string { return fmt.Sprint("E7 of ", status) }, "E7 of 422"},
		"all, in one line and bounded": {
			func(_ int, body []byte) string { return string(body) + "\xff" + string(body) },
			`{"code":"E7", "card":"4111"}` + strings.Repeat("x", 512-len(`{"code":"E7",`+"\n\t"+`"card":"4111"}`)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := cfg
			cfg.Redact = test.redact
			err := newHTTP(t, cfg).Publish(t.Context(), rawEvents(1))[0]
			status, ok := errors.AsType[*relay.StatusError](err)
			if !ok || status.Host != strings.TrimPrefix(server.URL, "http://") || status.Status != 422 || status.Text != test.want {
				t.Fatalf("%#v", err)
			}
			if strings.Contains(err.Error(), "s3cret") || !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("error is %q", err)
			}
		})
	}
}

func TestHTTPErrorsKeepNothingOfInvalidResponses(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"no HTTP":        "s3cret\r\n\r\n",
		"a bad header":   "HTTP/1.1 200 OK\r\ns3cret\r\n\r\n",
		"a bad location": "HTTP/1.1 302 Found\r\nLocation: http://[s3cret\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, answer)
				_ = conn.Close()
			})
			err := newHTTP(t, relay.HTTPConfig{URL: server.URL + "/s3cret"}).Publish(t.Context(), rawEvents(1))[0]
			if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), strings.TrimPrefix(server.URL, "http://")) {
				t.Errorf("error is %v, want one that names the host alone", err)
			}
		})
	}
}

func TestHTTPReusesAConnectionAfterResponsesOfUpTo64KiB(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int32{60 << 10: 1, 100 << 10: 2} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			var conns atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(size))
				_, _ = w.Write(make([]byte, size))
			}))
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					conns.Add(1)
				}
			}
			server.Start()
			t.Cleanup(server.Close)
			p := newHTTP(t, relay.HTTPConfig{URL: server.URL})
			for range 2 {
				redistest.Must(t, errors.Join(p.Publish(t.Context(), rawEvents(1))...))
			}
			if got := conns.Load(); got != want {
				t.Errorf("%d connections, want %d", got, want)
			}
		})
	}
}

func TestHTTPHonorsRetryAfterUpToItsCap(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		text  string
		want  time.Duration
		asked bool
	}{
		"seconds":     {"12", 12 * time.Second, true},
		"a long time": {"2147483647", time.Minute, true},
		"no time":     {"2147483648", 0, false},
		"date":        {now.Add(9 * time.Second).Format(http.TimeFormat), 9 * time.Second, true},
		"a past date": {now.Add(-time.Hour).Format(http.TimeFormat), 0, true},
		"too long":    {"100000", time.Minute, true},
		"none":        {"", 0, false},
		"nonsense":    {"soon", 0, false},
		"negative":    {"-3", 0, false},
	}
	for name, test := range tests {
		for _, status := range []int{429, 503} {
			t.Run(fmt.Sprint(name, "/", status), func(t *testing.T) {
				t.Parallel()
				server := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Date", now.Format(http.TimeFormat)) // the receiver's own clock
					if test.text != "" {
						w.Header().Set("Retry-After", test.text)
					}
					w.WriteHeader(status)
				})
				p := newHTTP(t, relay.HTTPConfig{URL: server.URL, RetryAfterCap: time.Minute})
				err := p.Publish(t.Context(), rawEvents(1))[0]
				if d, asked := message.RetryDelay(err); d != test.want || asked != test.asked || fate(err) != "unavailable" {
					t.Errorf("%v, %v, %v", err, d, asked)
				}
			})
		}
	}
}

// TestHTTPDistinguishesUnreachableFromHangingReceivers checks the difference between a receiver that cannot be reached and one
// that a request has hung or crashed.
func TestHTTPDistinguishesUnreachableFromHangingReceivers(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	redistest.Must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	quit := make(chan struct{})
	hangs := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-quit:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(quit) })
	dies := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	})
	plain := receiver(t, func(http.ResponseWriter, *http.Request) {})
	const short, long = 300 * time.Millisecond, time.Minute
	tests := map[string]struct {
		url, fate, class string
		timeout, lease   time.Duration
	}{
		"closed":              {closed.URL, "unavailable", "network", short, long},
		"no name":             {"http://no-such-host.invalid", "unavailable", "network", short, long},
		"no TLS":              {strings.Replace(plain.URL, "http:", "https:", 1), "unavailable", "network", short, long},
		"no hello":            {"https://" + silent.Addr().String(), "unavailable", "network", short, long},
		"no hello in a lease": {"https://" + silent.Addr().String(), "later", "", long, short},
		"hangs":               {hangs.URL, "refused", "no_answer", short, long},
		"hangs for a lease":   {hangs.URL, "refused", "no_answer", long, short},
		"dies":                {dies.URL, "refused", "no_answer", short, long},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newHTTP(t, relay.HTTPConfig{URL: test.url + "?token=secret", Timeout: test.timeout})
			ctx, cancel := context.WithTimeout(t.Context(), test.lease)
			defer cancel()
			err := p.Publish(ctx, rawEvents(1))[0]
			if fate(err) != test.fate || class(err) != test.class || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s (%s): %v", fate(err), class(err), err)
			}
			if d, _ := message.RetryDelay(err); d != 0 {
				t.Errorf("it is given back for %v", d)
			}
		})
	}
}

// TestHTTPRequestWrittenInPartCostsNoAttempt resets a connection after the header of a request whose body exceeds the buffers
// of both sockets. In the second case a connection closes that is no longer new, so the transport tries another one in vain.
func TestHTTPRequestWrittenInPartCostsNoAttempt(t *testing.T) {
	t.Parallel()
	answerAndClose := func(conn net.Conn) error {
		from := bufio.NewReader(conn)
		for _, answer := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""} {
			request, err := http.ReadRequest(from)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, request.Body)
			_, wrote := io.WriteString(conn, answer)
			if err = errors.Join(err, wrote); err != nil {
				return err
			}
		}
		return conn.Close()
	}
	reset := func(conn net.Conn) error {
		_, err := http.ReadRequest(bufio.NewReader(conn))
		return errors.Join(err, conn.(*net.TCPConn).SetLinger(0), conn.Close())
	}
	for name, serve := range map[string]func(net.Conn) error{"reset": reset, "no second connection": answerAndClose} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			redistest.Must(t, err)
			t.Cleanup(func() { _ = listener.Close() })
			served := make(chan error, 1)
			go func() {
				conn, err := listener.Accept()
				if err == nil {
					err = errors.Join(listener.Close(), serve(conn))
				}
				served <- err
			}()
			p := newHTTP(t, relay.HTTPConfig{URL: "http://" + listener.Addr().String(), Mode: cehttp.Binary, Timeout: time.Minute})
			if name != "reset" {
				redistest.Must(t, p.Publish(t.Context(), rawEvents(1))[0])
			}
			events := rawEvents(1)
			events[0].Data = make([]byte, 32<<20)
			err = p.Publish(t.Context(), events)[0]
			if fate(err) != "unavailable" || class(err) != "network" {
				t.Errorf("%s (%s): %v, want an unavailable network", fate(err), class(err), err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHTTPEventWithoutTimeLeftLosesNoAttempt(t *testing.T) {
	t.Parallel()
	server := receiver(t, func(http.ResponseWriter, *http.Request) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, mode := range []cehttp.Mode{cehttp.Structured, cehttp.Batched} {
		for _, err := range newHTTP(t, relay.HTTPConfig{URL: server.URL, Mode: mode}).Publish(ctx, rawEvents(20)) {
			if d, asked := message.RetryDelay(err); fate(err) != "later" || d != 0 || !asked {
				t.Errorf("%v, after %v", err, d)
			}
		}
	}
}

// TestHTTPVerifiesCertificatesWithTheGivenClient checks that certificates are verified and that the user's client is used.
func TestHTTPVerifiesCertificatesWithTheGivenClient(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		events, err := cehttp.Read(w, r, cehttp.ReadConfig{DisableVerification: true})
		if err == nil && (len(events) != 1 || r.TLS == nil || r.Method != http.MethodPost) {
			err = errors.New("not one event by TLS")
		}
		w.WriteHeader(cehttp.Status(err))
	}))
	t.Cleanup(server.Close)
	if err := newHTTP(t, relay.HTTPConfig{URL: server.URL, Client: server.Client()}).Publish(t.Context(), rawEvents(1))[0]; err != nil {
		t.Error(err)
	}
	var unknown *tls.CertificateVerificationError
	if err := newHTTP(t, relay.HTTPConfig{URL: server.URL}).Publish(t.Context(), rawEvents(1))[0]; fate(err) != "unavailable" || !errors.As(err, &unknown) {
		t.Errorf("an unknown certificate: %v", err)
	}
	if server.Client().CheckRedirect != nil {
		t.Error("the user's client was changed")
	}
}

func TestHTTPFollowsRedirectsIfTheClientDoes(t *testing.T) {
	t.Parallel()
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/moved", http.StatusPermanentRedirect)
			return
		}
		_, err := cehttp.Read(w, r, cehttp.ReadConfig{DisableVerification: true})
		w.WriteHeader(cehttp.Status(err))
	})
	follows := *server.Client()
	follows.CheckRedirect = func(*http.Request, []*http.Request) error { return nil }
	for want, client := range map[string]*http.Client{"sent ": &follows, "refused http_308": server.Client()} {
		err := newHTTP(t, relay.HTTPConfig{URL: server.URL, Client: client}).Publish(t.Context(), rawEvents(1))[0]
		if got := fate(err) + " " + class(err); got != want {
			t.Errorf("%s: %v, want %s", got, err, want)
		}
	}
}

func TestHTTPRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]relay.HTTPConfig{
		"URL and URLFor":    {},
		"HTTPConfig.URL: u": {URL: "ftp://host"},
		"HTTPConfig.URL: i": {URL: "http://user:password@\x00"},
		"Mode":              {URL: "http://host", Mode: 9},
		"Secrets[1]":        {URL: "http://host", Secrets: [][]byte{[]byte("0123456789abcdef"), []byte("short")}},
		"Timeout":           {URL: "http://host", Timeout: -1},
	} {
		if _, err := relay.HTTP(cfg); err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "password") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
