package luatxtest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/relay/cehttp"
	"github.com/luatx/luatx/stream"
)

// hasty returns a target whose events should arrive at once.
func hasty(m *brokertest.Mailbox, p relay.Publisher) luatxtest.PublisherTarget {
	target := m.Target(p)
	target.Patience = 500 * time.Millisecond
	return target
}

// byHTTP returns a webhook as a target.
func byHTTP(t testing.TB) luatxtest.PublisherTarget {
	t.Helper()
	var m brokertest.Mailbox
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		events, err := cehttp.Read(w, r, cehttp.ReadConfig{DisableVerification: true})
		for _, event := range events {
			err = errors.Join(err, m.Take(event))
		}
		switch {
		case errors.Is(err, relay.ErrUnavailable):
			w.WriteHeader(http.StatusServiceUnavailable)
		case err != nil && message.IsPermanent(err):
			w.WriteHeader(http.StatusUnprocessableEntity)
		default:
			w.WriteHeader(cehttp.Status(err))
		}
	}))
	t.Cleanup(server.Close)
	publisher, err := relay.HTTP(relay.HTTPConfig{URL: server.URL})
	redistest.Must(t, err)
	t.Cleanup(func() { publisher.Close() })
	return m.Target(publisher)
}

// byChannel returns a channel with a reader as a target.
func byChannel(t testing.TB) luatxtest.PublisherTarget {
	t.Helper()
	var m brokertest.Mailbox
	to, done := make(chan *message.RawMessage), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		for {
			select {
			case msg := <-to:
				if err := m.Take(msg); err != nil {
					msg.Nack(err)
				} else {
					msg.Ack()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return m.Target(relay.Channel(to, relay.ChannelConfig{}))
}

// byStreams returns a stream as a target, on a server that can become unreachable.
func byStreams(t testing.TB) luatxtest.PublisherTarget {
	t.Helper()
	server, key := redistest.Shared(t), redistest.Tag(t)
	proxy, past := redistest.Proxy(t, server.Addr()), server.Client(t)
	publisher, err := stream.NewPublisher(redistest.Client(t, proxy.Addr()), stream.PublisherConfig{Stream: key})
	redistest.Must(t, err)
	return luatxtest.PublisherTarget{
		Publisher: relay.Streams(publisher),
		Received: func() []*message.RawMessage {
			var all []*message.RawMessage
			for _, entry := range past.XRange(t.Context(), key, "-", "+").Val() {
				msg, err := stream.Unmarshal(entry.ID, entry.Values)
				redistest.Must(t, err)
				all = append(all, msg)
			}
			return all
		},
		Break: func() (mend func()) {
			return proxy.On(func([]string) respproxy.Action { return respproxy.CutRequest() })
		},
	}
}

func TestPublisherOfAStreamPasses(t *testing.T) {
	t.Parallel()
	luatxtest.TestPublisher(t, byStreams)
}

func TestPublisherOfHTTPPasses(t *testing.T) {
	t.Parallel()
	luatxtest.TestPublisher(t, byHTTP)
}

func TestPublisherOfAChannelPasses(t *testing.T) {
	t.Parallel()
	luatxtest.TestPublisher(t, byChannel)
}

func TestPublisherOfAFunctionPasses(t *testing.T) {
	t.Parallel()
	luatxtest.TestPublisher(t, func(testing.TB) luatxtest.PublisherTarget {
		var m brokertest.Mailbox
		send := relay.Func(func(_ context.Context, e *message.RawMessage) error { return m.Take(e) }, relay.FuncConfig{})
		return m.Target(relay.WithScope(send, func(e *message.RawMessage) string { return e.Type() }))
	})
}

func TestTestPublisherDetectsEachDefect(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	each := func(m *brokertest.Mailbox, events []*message.RawMessage, change func(i int, e *message.RawMessage, err error) error) []error {
		errs := make([]error, len(events))
		for i, e := range events {
			errs[i] = change(i, e, m.Take(e))
		}
		return errs
	}
	type publish = func(ctx context.Context, m *brokertest.Mailbox, events []*message.RawMessage) []error
	all := func(change func(i int, e *message.RawMessage, err error) error) publish {
		return func(_ context.Context, m *brokertest.Mailbox, events []*message.RawMessage) []error {
			return each(m, events, change)
		}
	}
	for name, c := range map[string]struct {
		publish publish
		want    string
	}{
		"says sent before it is": {func(_ context.Context, m *brokertest.Mailbox, events []*message.RawMessage) []error {
			for i, e := range events {
				if i%10 != 9 {
					_ = m.Take(e)
				}
			}
			return nil
		}, "have not arrived"},
		"answers once for a batch": {func(_ context.Context, m *brokertest.Mailbox, events []*message.RawMessage) []error {
			return []error{errors.Join(each(m, events, func(_ int, _ *message.RawMessage, err error) error { return err })...)}
		}, "1 answers to 2 events"},
		"loses bytes": {func(_ context.Context, m *brokertest.Mailbox, events []*message.RawMessage) []error {
			return each(m, events, func(int, *message.RawMessage, error) error {
				m.ChangeLast(func(e *message.RawMessage) { e.Data = []byte(strings.ToValidUTF8(string(e.Data), "?")) })
				return nil
			})
		}, "has arrived as"},
		"loses attributes": {func(_ context.Context, m *brokertest.Mailbox, events []*message.RawMessage) []error {
			return each(m, events, func(int, *message.RawMessage, error) error {
				m.ChangeLast(func(e *message.RawMessage) { delete(e.Attributes, message.AttrSubject) })
				return nil
			})
		}, "subject"},
		"writes into events": {all(func(_ int, e *message.RawMessage, err error) error {
			e.Attributes["traceparent"] = "00"
			return err
		}), "was changed"},
		"knows no deadline": {func(ctx context.Context, m *brokertest.Mailbox, events []*message.RawMessage) []error {
			if ctx.Err() != nil {
				<-stuck
			}
			return each(m, events, func(_ int, _ *message.RawMessage, err error) error { return err })
		}, "has not returned"},
		"parks in haste": {func(ctx context.Context, m *brokertest.Mailbox, events []*message.RawMessage) []error {
			return each(m, events, func(_ int, _ *message.RawMessage, err error) error {
				if ctx.Err() != nil {
					return message.Permanent(ctx.Err())
				}
				return err
			})
		}, "out of time"},
		"counts outages": {all(func(_ int, _ *message.RawMessage, err error) error {
			if errors.Is(err, relay.ErrUnavailable) {
				return errors.New("connection refused")
			}
			return err
		}), "lose an attempt"},
		"parks in an outage": {all(func(_ int, _ *message.RawMessage, err error) error {
			if errors.Is(err, relay.ErrUnavailable) {
				return message.Permanent(err)
			}
			return err
		}), "parked because of an outage"},
		"swallows outages": {all(func(_ int, _ *message.RawMessage, err error) error {
			if errors.Is(err, relay.ErrUnavailable) {
				return nil
			}
			return err
		}), "it would be lost"},
		"swallows refusals": {all(func(_ int, _ *message.RawMessage, err error) error {
			if message.IsPermanent(err) {
				return nil
			}
			return err
		}), "answered nil"},
		"takes a refusal for an outage": {all(func(_ int, _ *message.RawMessage, err error) error {
			if message.IsPermanent(err) {
				return relay.Unavailable(errors.New("refused"))
			}
			return err
		}), "would pause for it"},
		"refuses the batch": {func(_ context.Context, m *brokertest.Mailbox, events []*message.RawMessage) []error {
			errs := each(m, events, func(_ int, _ *message.RawMessage, err error) error { return err })
			if i := slices.IndexFunc(errs, message.IsPermanent); i >= 0 {
				for j := range errs {
					errs[j] = errs[i]
				}
			}
			return errs
		}, "because another one was refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rejects(t, c.want, func(wrap func(string, func(testing.TB))) {
				luatxtest.CheckPublisher(t, func(testing.TB) luatxtest.PublisherTarget {
					var m brokertest.Mailbox
					return hasty(&m, relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
						return c.publish(ctx, &m, events)
					}))
				}, wrap)
			})
		})
	}
	t.Run("is one at a time", func(t *testing.T) {
		t.Parallel()
		rejects(t, "was not sent", func(wrap func(string, func(testing.TB))) {
			luatxtest.CheckPublisher(t, func(testing.TB) luatxtest.PublisherTarget {
				var m brokertest.Mailbox
				var busy atomic.Bool
				return hasty(&m, relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
					if !busy.CompareAndSwap(false, true) {
						return slices.Repeat([]error{errors.New("busy")}, len(events))
					}
					defer busy.Store(false)
					if strings.HasPrefix(events[0].ID(), "side") {
						<-time.After(50 * time.Millisecond)
					}
					return each(&m, events, func(_ int, _ *message.RawMessage, err error) error { return err })
				}))
			}, wrap)
		})
	})
	for name, c := range map[string]struct {
		scope func(*message.RawMessage) string
		want  string
	}{
		"has a scope that panics":  {func(e *message.RawMessage) string { return e.Type()[:3] }, "Scope panics"},
		"has a scope of each call": {func(*message.RawMessage) string { return message.NewID() }, "would never end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rejects(t, c.want, func(wrap func(string, func(testing.TB))) {
				luatxtest.CheckPublisher(t, func(testing.TB) luatxtest.PublisherTarget {
					var m brokertest.Mailbox
					return hasty(&m, relay.WithScope(relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
						return each(&m, events, func(_ int, _ *message.RawMessage, err error) error { return err })
					}), c.scope))
				}, wrap)
			})
		})
	}
}

// rejects fails the test unless the checks report the wanted error.
func rejects(t *testing.T, want string, run func(wrap func(name string, check func(testing.TB)))) {
	t.Helper()
	var complaints []string
	run(func(name string, check func(testing.TB)) {
		if text := failing(t, check); text != "" {
			complaints = append(complaints, name+": "+text)
		}
	})
	if text := strings.Join(complaints, "\n"); !strings.Contains(text, want) {
		t.Errorf("%q is missing in what the checks say:\n%s", want, text)
	}
}
