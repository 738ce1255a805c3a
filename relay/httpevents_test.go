package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/relay/cehttp"
)

var webhookSecret, nextSecret = []byte("0123456789abcdef"), []byte("fedcba9876543210")

func TestHTTPReceiverGetsSignedEventsUnchanged(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]cehttp.Mode{"structured": cehttp.Structured, "binary": cehttp.Binary, "batched": cehttp.Batched} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var got []*message.RawMessage
			requests := 0
			server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				requests++
				secret := [][]byte{webhookSecret, nextSecret}[requests%2]
				events, err := cehttp.Read(w, r, cehttp.ReadConfig{Secrets: [][]byte{secret}})
				if r.Header.Get("Authorization") != "Bearer "+fmt.Sprint(len(events)) || r.Header.Get("User-Agent") != "luatx" || r.Header.Values("Idempotency-Key") != nil {
					t.Errorf("headers %v", r.Header)
				}
				if own := len(events) > 0 && r.Header.Get("Webhook-Id") == events[0].ID(); own != (mode != cehttp.Batched) {
					t.Errorf("the signature is for %q", r.Header.Get("Webhook-Id"))
				}
				got = append(got, events...)
				w.WriteHeader(cehttp.Status(err))
			})
			p := newHTTP(t, relay.HTTPConfig{
				URL: server.URL, Mode: mode, BatchSize: 3, Secrets: [][]byte{webhookSecret, nextSecret},
				Header: func(_ context.Context, events []*message.RawMessage) (http.Header, error) {
					return http.Header{"Authorization": {fmt.Sprint("Bearer ", len(events))}, "content-type": {"overwritten"}}, nil
				},
			})
			want := rawEvents(10, func(i int, a message.Attributes) {
				a["subject"], a["datacontenttype"], a["time"] = fmt.Sprint("Grüße № ", i), "application/json", time.Date(2026, 1, 1, i, 0, 0, 0, time.UTC)
				a["partitionkey"] = "one" // in order
			})
			for i, err := range p.Publish(t.Context(), want) {
				if err != nil {
					t.Errorf("event %d: %v", i, err)
				}
			}
			if len(got) != len(want) || mode == cehttp.Batched && requests != 4 {
				t.Fatalf("%d events in %d requests", len(got), requests)
			}
			for i := range want {
				if !reflect.DeepEqual(got[i].Attributes, want[i].Attributes) || string(got[i].Data) != string(want[i].Data) {
					t.Errorf("event %d: %v %s", i, got[i].Attributes, got[i].Data)
				}
			}
		})
	}
}

// TestHTTPWrongSecretCountsAttempts checks that a receiver with another secret costs attempts and parks nothing at once.
func TestHTTPWrongSecretCountsAttempts(t *testing.T) {
	t.Parallel()
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := cehttp.Read(w, r, cehttp.ReadConfig{Secrets: [][]byte{nextSecret}})
		w.WriteHeader(cehttp.Status(err))
	})
	for _, secrets := range [][][]byte{{webhookSecret}, nil} {
		err := newHTTP(t, relay.HTTPConfig{URL: server.URL, Secrets: secrets}).Publish(t.Context(), rawEvents(1))[0]
		if fate(err) != "refused" || class(err) != "http_401" {
			t.Error(err)
		}
	}
}

// TestHTTPBatchIsolatesARejectedEvent checks that one event which the receiver does not accept does not park the others or use
// up their attempts.
func TestHTTPBatchIsolatesARejectedEvent(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{422: "parked", 413: "parked", 500: "refused", 404: "refused", 503: "unavailable"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				events, err := cehttp.Read(w, r, cehttp.ReadConfig{DisableVerification: true})
				if err != nil {
					t.Error(err)
				}
				if slices.ContainsFunc(events, func(e *message.RawMessage) bool { return e.ID() == "37" }) {
					w.WriteHeader(status)
				}
			})
			for i, err := range newHTTP(t, relay.HTTPConfig{URL: server.URL, Mode: cehttp.Batched, BatchSize: 50}).Publish(t.Context(), rawEvents(100)) {
				wanted := "sent"
				switch {
				case i == 37, i < 50 && status == 404, status == 503: // these statuses are about the address and the receiver
					wanted = want
				}
				if fate(err) != wanted {
					t.Errorf("event %d: %v, want it %s", i, err, wanted)
				}
			}
			if n := requests.Load(); n > 15 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestHTTPEventThatCannotBeSentCausesNoOutage(t *testing.T) {
	t.Parallel()
	server := receiver(t, func(http.ResponseWriter, *http.Request) {})
	events := rawEvents(6, func(i int, a message.Attributes) {
		a["destination"] = server.URL
		switch i {
		case 0:
			delete(a, "source")
		case 1:
			a["datacontenttype"] = "text/plain\r\nX-Evil: yes"
		case 2:
			a["destination"] = "unknown"
		case 3:
			a["destination"] = "http://user:password@\x7f"
		case 4:
			a["subject"] = "a\r\nb"
		}
	})
	p := newHTTP(t, relay.HTTPConfig{
		Mode: cehttp.Binary,
		URLFor: func(e *message.RawMessage) (string, error) {
			if e.Destination() == "unknown" {
				return "", errors.New("nobody of that name")
			}
			return e.Destination(), nil
		},
		Header: func(_ context.Context, events []*message.RawMessage) (http.Header, error) {
			return http.Header{"X-Subject": {events[0].Subject()}}, nil
		},
	})
	want := []string{"parked malformed", "parked malformed", "refused unrouted", "refused unrouted", "refused header", "sent "}
	for i, err := range p.Publish(t.Context(), events) {
		if got := fate(err) + " " + class(err); got != want[i] || err != nil && strings.Contains(err.Error(), "password") {
			t.Errorf("event %d: %s: %v, want %s", i, got, err, want[i])
		}
	}
	if scope := p.Scope(events[5]); scope != server.URL {
		t.Errorf("scope %q", scope)
	}
}

// TestHTTPUnavailableHostGetsNoFurtherRequestsOfABatch checks that an unavailable host gets one request per batch, and that
// other hosts get theirs.
func TestHTTPUnavailableHostGetsNoFurtherRequestsOfABatch(t *testing.T) {
	t.Parallel()
	for _, mode := range []cehttp.Mode{cehttp.Structured, cehttp.Batched} {
		var busy, well atomic.Int64
		down := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
			busy.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		up := receiver(t, func(http.ResponseWriter, *http.Request) { well.Add(1) })
		p := newHTTP(t, relay.HTTPConfig{Mode: mode, BatchSize: 1, Concurrency: 2, URLFor: func(e *message.RawMessage) (string, error) { return e.Destination(), nil }})
		errs := p.Publish(t.Context(), rawEvents(40, func(i int, a message.Attributes) {
			a["destination"] = []string{down.URL, up.URL}[i%2]
		}))
		for i, err := range errs {
			if want := []string{"unavailable", "sent"}[i%2]; fate(err) != want {
				t.Errorf("mode %d, event %d: %v", mode, i, err)
			}
		}
		if busy.Load() > 2 || well.Load() != 20 {
			t.Errorf("mode %d: %d requests to the host that is down, %d to the other", mode, busy.Load(), well.Load())
		}
	}
}

// TestHTTPBatchIsolatesAnEventThatGetsNoStatus checks an event that crashes the receiver, and one that no request can hold.
func TestHTTPBatchIsolatesAnEventThatGetsNoStatus(t *testing.T) {
	t.Parallel()
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		events, err := cehttp.Read(w, r, cehttp.ReadConfig{DisableVerification: true})
		if slices.ContainsFunc(events, func(e *message.RawMessage) bool { return e.ID() == "crash" }) {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(cehttp.Status(err))
	})
	for want, change := range map[string]func(message.Attributes){
		"refused no_answer": func(a message.Attributes) { a["id"] = "crash" },
		"parked malformed":  func(a message.Attributes) { delete(a, "source") },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			events := rawEvents(9, func(i int, a message.Attributes) {
				if i == 5 {
					change(a)
				}
			})
			for i, err := range newHTTP(t, relay.HTTPConfig{URL: server.URL, Mode: cehttp.Batched}).Publish(t.Context(), events) {
				wanted := "sent "
				if i == 5 {
					wanted = want
				}
				if got := fate(err) + " " + class(err); got != wanted {
					t.Errorf("event %d: %s: %v, want it %s", i, got, err, wanted)
				}
			}
		})
	}
}

func TestHTTPReceiverThatIsDownBetweenTheHalvesOfABatchGetsNoFurtherEvent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []int
		want    []string
	}{
		"before the first half":  {[]int{422, 503}, []string{"unavailable", "unavailable", "unavailable", "unavailable"}},
		"before the second half": {[]int{422, 200, 503}, []string{"sent", "unavailable", "unavailable", "unavailable"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			server := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.answers[min(int(requests.Add(1)), len(c.answers))-1])
			})
			var got []string
			for _, err := range newHTTP(t, relay.HTTPConfig{URL: server.URL, Mode: cehttp.Batched, BatchSize: 2}).Publish(t.Context(), rawEvents(4)) {
				got = append(got, fate(err))
			}
			if n := int(requests.Load()); !slices.Equal(got, c.want) || n != len(c.answers) {
				t.Errorf("%v after %d requests, want %v after %d", got, n, c.want, len(c.answers))
			}
		})
	}
}

func TestHTTPBatchHoldsOnlyEventsOfOneURL(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string][]string{}
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		events, err := cehttp.Read(w, r, cehttp.ReadConfig{DisableVerification: true})
		for _, e := range events {
			got[r.URL.RequestURI()] = append(got[r.URL.RequestURI()], e.ID())
		}
		w.WriteHeader(cehttp.Status(err))
	})
	paths := []string{"/a", "/b", "/b?c=1"}
	p := newHTTP(t, relay.HTTPConfig{Mode: cehttp.Batched, URLFor: func(e *message.RawMessage) (string, error) { return server.URL + e.Destination(), nil }})
	if err := errors.Join(p.Publish(t.Context(), rawEvents(6, func(i int, a message.Attributes) { a["destination"] = paths[i%3] }))...); err != nil {
		t.Error(err)
	}
	if want := map[string][]string{"/a": {"0", "3"}, "/b": {"1", "4"}, "/b?c=1": {"2", "5"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the receiver got %v, want %v", got, want)
	}
}

// TestHTTPErrorsOfURLForAndHeaderKeepTheirMeaning checks that these functions decide about an event as a Publisher does, and that
// no request is sent.
func TestHTTPErrorsOfURLForAndHeaderKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	server := receiver(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	odd := errors.New("odd")
	for want, err := range map[string]error{
		"refused ":                odd,
		"parked no_customer":      message.Permanent(relay.Classify("no_customer", odd)),
		"unavailable vault":       relay.Unavailable(relay.Classify("vault", odd)),
		"later not_yet":           relay.Later(relay.Classify("not yet", odd), time.Minute),
		"refused token_malformed": relay.Classify("token malformed", odd),
	} {
		for _, mode := range []cehttp.Mode{cehttp.Structured, cehttp.Batched} {
			url := newHTTP(t, relay.HTTPConfig{Mode: mode, URLFor: func(*message.RawMessage) (string, error) { return server.URL, err }})
			header := newHTTP(t, relay.HTTPConfig{Mode: mode, URL: server.URL, Header: func(context.Context, []*message.RawMessage) (http.Header, error) {
				return nil, err
			}})
			for name, p := range map[string]*relay.HTTPPublisher{"URLFor": url, "Header": header} {
				got, wanted := p.Publish(t.Context(), rawEvents(1))[0], want
				if name == "URLFor" && wanted == "refused " {
					wanted = "refused unrouted"
				}
				if s := fate(got) + " " + class(got); s != wanted || !errors.Is(got, odd) {
					t.Errorf("%s, mode %d: %s: %v, want %s", name, mode, s, got, wanted)
				}
			}
		}
	}
}

func TestHTTPHeadersOfTheUserReplaceThoseOfThePublisher(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	server := receiver(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	p := newHTTP(t, relay.HTTPConfig{URL: server.URL, Header: func(_ context.Context, events []*message.RawMessage) (http.Header, error) {
		return http.Header{"idempotency-key": {"key of " + events[0].ID()}, "user-agent": {"shop"}}, nil
	}})
	if err := p.Publish(t.Context(), rawEvents(1))[0]; err != nil {
		t.Fatal(err)
	}
	if h := <-got; h.Get("Idempotency-Key") != "key of 0" || !slices.Equal(h.Values("User-Agent"), []string{"shop"}) {
		t.Errorf("headers %v", h)
	} else if h.Get("Webhook-Id") != "" || h.Get("Webhook-Timestamp") != "" {
		t.Errorf("a request without a signature has the headers %v", h)
	}
}

// closing is an http.RoundTripper whose responses record that they are closed. It keeps the request.
type closing struct {
	request *http.Request
	closed  bool
}

func (c *closing) RoundTrip(r *http.Request) (*http.Response, error) {
	c.request = r
	return &http.Response{StatusCode: http.StatusOK, Body: c, Request: r}, nil
}

func (c *closing) Read([]byte) (int, error) { return 0, io.EOF }

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestHTTPLeavesNoResponseOpen(t *testing.T) {
	t.Parallel()
	c := &closing{}
	p := newHTTP(t, relay.HTTPConfig{URL: "http://host", Client: &http.Client{Transport: c}})
	if err := p.Publish(t.Context(), rawEvents(1))[0]; err != nil || !c.closed || c.request.Context().Err() == nil {
		t.Errorf("%v, closed: %t, its context: %v", err, c.closed, c.request.Context().Err())
	}
}

func TestHTTPCloseEndsIdleConnections(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			ended <- struct{}{}
		}
	}
	server.Start()
	p, err := relay.HTTP(relay.HTTPConfig{URL: server.URL})
	redistest.Must(t, err)
	redistest.Must(t, p.Publish(t.Context(), rawEvents(1))[0])
	p.Close()
	redistest.Eventually(t, "the connection to end", func() bool { return len(ended) > 0 })
	server.Close()
}

func TestHTTPEventWhoseURLForPanicsFailsAlone(t *testing.T) {
	t.Parallel()
	server := receiver(t, func(http.ResponseWriter, *http.Request) {})
	p := newHTTP(t, relay.HTTPConfig{URLFor: func(e *message.RawMessage) (string, error) {
		if e.ID() == "1" {
			panic("odd")
		}
		return server.URL, nil
	}})
	for i, err := range p.Publish(t.Context(), rawEvents(3)) {
		if (err != nil) != (i == 1) || err != nil && !strings.Contains(err.Error(), "panicked: odd") {
			t.Errorf("event %d: %v", i, err)
		}
	}
}

// tripper is an http.RoundTripper that accepts every request after a second.
type tripper struct {
	mu           sync.Mutex
	inside, most int
}

func (t *tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	t.inside++
	t.most = max(t.most, t.inside)
	t.mu.Unlock()
	<-time.After(time.Second)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inside--
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}

func TestHTTPConcurrencyBoundsTheRequestsOfABatch(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]cehttp.Mode{"structured": cehttp.Structured, "batched": cehttp.Batched} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := &tripper{}
				p := newHTTP(t, relay.HTTPConfig{
					Mode: mode, Concurrency: 3, Client: &http.Client{Transport: client},
					URLFor: func(e *message.RawMessage) (string, error) { return "http://host/" + e.ID(), nil },
				})
				begun := time.Now()
				for i, err := range p.Publish(t.Context(), rawEvents(12)) {
					if err != nil {
						t.Errorf("event %d: %v", i, err)
					}
				}
				if took := time.Since(begun); client.most != 3 || took != 4*time.Second {
					t.Errorf("12 requests of a second: %d at a time, %v in all, want 3 and 4s", client.most, took)
				}
			})
		})
	}
}
