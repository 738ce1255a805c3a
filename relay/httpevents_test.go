package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
