package nats_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/luatx/luatx/contrib/nats"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

func TestPublisherPassesTheSuite(t *testing.T) {
	t.Parallel()
	for name, structured := range map[string]bool{"binary": false, "structured": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			luatxtest.TestPublisher(t, func(t testing.TB) luatxtest.PublisherTarget {
				t.Helper()
				return target(t, structured)
			})
		})
	}
}

func target(t testing.TB, structured bool) luatxtest.PublisherTarget {
	t.Helper()
	b := newBroker(t)
	b.stream("out")
	b.stream("tiny", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 })
	var box brokertest.Mailbox
	in, _ := b.subscribe("out", func(c *nats.SubscriberConfig) {
		c.Consumer.AckWait = time.Second // after that, messages that were in flight at the stop are delivered again
	})
	go box.Collect(in)
	target := box.Target(b.publisher(func(c *nats.PublisherConfig) {
		c.Structured = structured
		c.Subject = func(event *message.RawMessage) (string, error) {
			if box.Refuses(event.ID()) {
				return "tiny.one", nil
			}
			return "out.events", nil
		}
	}))
	target.Break = func() func() {
		b.stop()
		return b.start
	}
	return target
}

// TestStreamStoresAnEventPublishedTwiceOnce tests that a stream stores an event that is published twice once, and both events
// of two sources with the same ids.
func TestStreamStoresAnEventPublishedTwiceOnce(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	stream := b.stream("out")
	acks := make(chan *jetstream.PubAck, 10)
	p := b.publisher(func(c *nats.PublisherConfig) {
		c.Acked = func(_ *message.RawMessage, ack *jetstream.PubAck) { acks <- ack }
	})
	for i, e := range []*message.RawMessage{event("1"), event("1"), event("1", "source", "/other"), event("2")} {
		e.Attributes["destination"] = "out.a"
		redistest.Must(t, errors.Join(p.Publish(t.Context(), []*message.RawMessage{e})...))
		if ack := <-acks; ack.Duplicate != (i == 1) {
			t.Errorf("publish %d: %+v", i, ack)
		}
	}
	info, err := stream.Info(t.Context())
	redistest.Must(t, err)
	if info.State.Msgs != 3 {
		t.Errorf("%d messages, want 3", info.State.Msgs)
	}
	first, err := stream.GetMsg(t.Context(), 1)
	redistest.Must(t, err)
	if got := first.Header.Get(jetstream.MsgIDHeader); got != "/shop 1" {
		t.Errorf("Nats-Msg-Id is %q", got)
	}
	if nats.MessageID(event("a b", "source", "c")) == nats.MessageID(event("b", "source", "c a")) {
		t.Error("two events have one id")
	}
}

func TestPublisherClassifiesFailures(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("out")
	b.stream("full", func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1, jetstream.DiscardNew })
	b.put("full.x", "one")
	b.stream("tiny", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 })
	core, err := b.js.Conn().Subscribe("core", func(m *natsgo.Msg) { _ = m.Respond([]byte("hello")) })
	redistest.Must(t, err)
	defer func() { _ = core.Unsubscribe() }()
	p := b.publisher()
	large := event("5", "destination", "out.x")
	large.Data = make([]byte, 2<<20)
	events := []*message.RawMessage{
		event("0", "destination", "nobody.x"), event("1", "destination", "full.x"), event("2", "destination", "tiny.x"), event("3"),
		event("4", "destination", "out.x", "type", ""), large, event("6", "destination", "core"), event("7", "destination", "a b"),
		event("8", "destination", "out.x"),
	}
	want := []string{
		"unavailable no_stream", "unavailable jetstream_10077", "permanent too_large", "counted unrouted", "permanent malformed",
		"permanent too_large", "counted no_jetstream", "counted unrouted", "",
	}
	for i, e := range events {
		err := p.Publish(t.Context(), []*message.RawMessage{e})[0]
		if got := brokertest.Verdict(err); got != want[i] {
			t.Errorf("event %d: %s, want %s: %v", i, got, want[i], err)
		}
	}
	if p.Scope(events[1]) != "full.x" || p.Scope(events[3]) != "" {
		t.Error("the scopes are not the subjects")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Publish(ctx, events[8:])[0]; !errors.Is(err, relay.ErrLater) {
		t.Errorf("while the relay stops: %v", err)
	}
	b.stop()
	for range 3 { // during an interruption and after it
		if got := brokertest.Verdict(p.Publish(t.Context(), events[8:])[0]); got != "unavailable network" {
			t.Errorf("without a server: %s", got)
		}
	}
}

func TestEventsOfAKeyAreStoredInOrder(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("out")
	var events []*message.RawMessage
	for i := range 60 {
		events = append(events, event(strings.Repeat("i", i+1), "destination", "out.x", "partitionkey", string(rune('a'+i%3))))
	}
	redistest.Must(t, errors.Join(b.publisher().Publish(t.Context(), events)...))
	in, _ := b.subscribe("out")
	last := map[string]int{}
	for range events {
		msg := next(t, in)
		if n := len(msg.ID()); n <= last[msg.PartitionKey()] {
			t.Errorf("event %d of key %s comes after %d", n, msg.PartitionKey(), last[msg.PartitionKey()])
		} else {
			last[msg.PartitionKey()] = n
		}
		msg.Ack()
	}
}

func TestSubscriberDecodesMessagesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("in")
	tests := map[string]struct {
		header natsgo.Header
		data   string
		want   map[string]string
	}{
		"binary": {
			natsgo.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/s"}, "ce-type": {"t"}, "ce-datacontenttype": {"text/plain;%20charset=utf-8"}, "ce-subject": {"Euro%20%E2%82%AC"}},
			"x",
			map[string]string{"id": "1", "source": "/s", "type": "t", "datacontenttype": "text/plain; charset=utf-8", "subject": "Euro €"},
		},
		"the other case, content-type, quotes": {
			natsgo.Header{"Ce-Specversion": {"1.0"}, "CE-ID": {"1"}, "Ce-Source": {"/s"}, "Ce-Type": {"t"}, "Content-Type": {"text/csv"}, "Ce-Subject": {`"a \"b\""`}},
			"x",
			map[string]string{"id": "1", "datacontenttype": "text/csv", "subject": `a "b"`},
		},
		"structured":                {natsgo.Header{"Content-Type": {"Application/CloudEvents+JSON; charset=UTF-8"}}, `{"specversion":"1.0","id":"1","source":"/s","type":"t","data":5}`, map[string]string{"id": "1", "source": "/s", "type": "t"}},
		"structured without header": {nil, `{"specversion":"1.0","id":"1","source":"/s","type":"t","data":5}`, map[string]string{"id": "1", "source": "/s", "type": "t"}},
		"plain":                     {natsgo.Header{"content-type": {"text/plain"}}, `hello`, map[string]string{"type": "in.x", "source": "nats://in", "datacontenttype": "text/plain"}},
		"half an event":             {nil, `{"specversion":"1.0"}`, map[string]string{"type": "in.x", "source": "nats://in"}},
	}
	in, _ := b.subscribe("in")
	for name, test := range tests {
		_, err := b.js.PublishMsg(t.Context(), &natsgo.Msg{Subject: "in.x", Header: maps.Clone(test.header), Data: []byte(test.data)})
		redistest.Must(t, err)
		msg := next(t, in)
		for attribute, want := range test.want {
			if got := msg.Attributes[attribute]; got != want {
				t.Errorf("%s: %s is %q, want %q", name, attribute, got, want)
			}
		}
		if msg.ID() == "" {
			t.Errorf("%s: no id", name)
		}
		msg.Ack()
	}
}
