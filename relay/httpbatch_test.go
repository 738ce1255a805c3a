package relay_test

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/relay/cehttp"
)

func TestHTTPBatchFailsAloneIfCodeOfTheUserPanicsOrEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	for what, fail := range map[string]func(){"panicked: no token": func() { panic("no token") }, "Goexit": runtime.Goexit} {
		for _, where := range []string{"Header", "Client", "Redact"} {
			t.Run(where+" "+what, func(t *testing.T) {
				t.Parallel()
				failIn := func(place, destination string) {
					if place == where && destination == "bad" {
						fail()
					}
				}
				p := newHTTP(t, relay.HTTPConfig{
					Mode: cehttp.Batched, BatchSize: 2,
					URLFor: func(e *message.RawMessage) (string, error) { return "http://shop/" + e.Destination(), nil },
					Header: func(_ context.Context, events []*message.RawMessage) (http.Header, error) {
						failIn("Header", events[0].Destination())
						return nil, nil
					},
					Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
						failIn("Client", strings.TrimPrefix(r.URL.Path, "/"))
						status := http.StatusOK
						if r.URL.Path == "/bad" {
							status = http.StatusInternalServerError
						}
						return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}, nil
					})},
					Redact: func(int, []byte) string {
						failIn("Redact", "bad")
						return ""
					},
				})
				errs := p.Publish(t.Context(), rawEvents(8, func(i int, a message.Attributes) { a["destination"] = []string{"good", "bad"}[i%2] }))
				for i, err := range errs {
					if bad := i%2 == 1; bad != (err != nil) || bad && !strings.Contains(err.Error(), what) {
						t.Errorf("event %d: %v", i, err)
					}
				}
			})
		}
	}
}
