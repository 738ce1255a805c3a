package cloudevents_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/client"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/protocol"
	sdkhttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/luatx/luatx/contrib/cloudevents"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/relay/cehttp"
)

// TestPublisherPassesTheSuite runs the suite of luatxtest. The SDK's client sends over HTTP to a receiver that does not use the
// SDK.
func TestPublisherPassesTheSuite(t *testing.T) {
	t.Parallel()
	luatxtest.TestPublisher(t, func(t testing.TB) luatxtest.PublisherTarget {
		t.Helper()
		var box brokertest.Mailbox
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			events, err := cehttp.Read(w, r, cehttp.ReadConfig{DisableVerification: true})
			if err != nil {
				t.Error(err)
				return
			}
			switch err := box.Take(events[0]); {
			case errors.Is(err, relay.ErrUnavailable):
				w.WriteHeader(http.StatusServiceUnavailable)
			case err != nil:
				w.WriteHeader(http.StatusUnprocessableEntity)
			}
		}))
		t.Cleanup(server.Close)
		p, err := cloudevents.NewPublisher(httpClient(t), cloudevents.PublisherConfig{Target: func(*message.RawMessage) (string, error) { return server.URL, nil }})
		redistest.Must(t, err)
		return box.Target(p)
	})
}

// httpClient returns a client of the SDK that leaves no connections behind.
func httpClient(t testing.TB, opts ...sdkhttp.Option) client.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	p, err := sdkhttp.New(append(opts, sdkhttp.WithRoundTripper(transport))...)
	redistest.Must(t, err)
	c, err := client.New(p)
	redistest.Must(t, err)
	return c
}

func TestAnswerMapsEachResultOfTheSDK(t *testing.T) {
	t.Parallel()
	status := func(code int) protocol.Result { return sdkhttp.NewResult(code, "%w", protocol.ResultNACK) }
	for name, test := range map[string]struct {
		result                           protocol.Result
		class                            string // empty: sent
		unavailable, permanent, stopping bool
	}{
		"nil": {}, "ACK": {result: protocol.ResultACK}, "200": {result: sdkhttp.NewResult(200, "%w", protocol.ResultACK)},
		"NACK": {result: protocol.ResultNACK, class: "nack"}, "503": {result: status(503), class: "http_503", unavailable: true},
		"429": {result: status(429), class: "http_429", unavailable: true}, "404": {result: status(404), class: "http_404"},
		"422": {result: status(422), class: "http_422", permanent: true}, "500": {result: status(500), class: "http_500"}, "302": {result: status(302), class: "http_302"},
		"invalid":     {result: event.ValidationError{"id": errors.New("MUST be there")}, class: "malformed", permanent: true},
		"undelivered": {result: errors.New("sender not set"), class: "undelivered", unavailable: true},
	} {
		err := cloudevents.Answer(test.result)
		var c relay.Classified
		switch {
		case (err == nil) != (test.class == ""):
			t.Errorf("%s: %v", name, err)
		case err != nil && (!errors.As(err, &c) || c.Class() != test.class):
			t.Errorf("%s: not of class %s: %v", name, test.class, err)
		case errors.Is(err, relay.ErrUnavailable) != test.unavailable || message.IsPermanent(err) != test.permanent:
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEventFailsWithoutReceiverResponseOrRelay(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}, 10), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-release }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	e := message.NewRaw(nil, message.Attributes{"id": "1", "source": "/s", "type": "t"}, nil)
	publish := func(ctx context.Context, target string) error {
		p, err := cloudevents.NewPublisher(httpClient(t), cloudevents.PublisherConfig{
			Timeout: 200 * time.Millisecond,
			Target: func(*message.RawMessage) (string, error) {
				if target == "" {
					return "", errors.New("nobody wants it")
				}
				return target, nil
			},
		})
		redistest.Must(t, err)
		return errors.Join(p.Publish(ctx, []*message.RawMessage{e})...)
	}
	class := func(err error) string {
		if c, ok := errors.AsType[relay.Classified](err); ok {
			return c.Class()
		}
		return fmt.Sprint(err)
	}
	if err := publish(t.Context(), "http://127.0.0.1:1/?secret=x"); class(err) != "network" || !errors.Is(err, relay.ErrUnavailable) {
		t.Errorf("nobody there: %v", err)
	}
	if err := publish(t.Context(), server.URL); class(err) != "no_answer" || errors.Is(err, relay.ErrUnavailable) {
		t.Errorf("no answer: %v", err)
	}
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if err := publish(ctx, server.URL); !errors.Is(err, relay.ErrLater) {
		t.Errorf("stopped: %v", err)
	}
	if err := publish(t.Context(), ""); class(err) != "unrouted" {
		t.Errorf("no target: %v", err)
	}
	p, err := cloudevents.NewPublisher(httpClient(t), cloudevents.PublisherConfig{})
	redistest.Must(t, err)
	if errs := p.Publish(t.Context(), []*message.RawMessage{message.NewRaw(nil, nil, nil)}); class(errs[0]) != "malformed" || !message.IsPermanent(errs[0]) {
		t.Errorf("no event: %v", errs)
	}
	for _, cfg := range []cloudevents.PublisherConfig{{Timeout: -1}, {Concurrency: -1}} {
		if _, err := cloudevents.NewPublisher(httpClient(t), cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}
