package amqp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/contrib/amqp"
	"github.com/luatx/luatx/contrib/amqp/internal/rabbit"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// TestPublisherPassesTheSuite runs the suite of luatxtest on a real broker, in each mode. Outages cut the connection. An event
// is refused because no queue is bound for it, or because its exchange does not exist, so that the broker closes the channel.
func TestPublisherPassesTheSuite(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	for name, target := range map[string]struct {
		refusing   [2]string // exchange and routing key
		structured bool
		prefix     string
	}{
		"unroutable":            {refusing: [2]string{"", "no-such-queue"}},
		"no exchange":           {refusing: [2]string{"no-such-exchange", "x"}, prefix: amqp.PrefixColon},
		"structured unroutable": {refusing: [2]string{"", "no-such-queue"}, structured: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			luatxtest.TestPublisher(t, func(t testing.TB) luatxtest.PublisherTarget {
				t.Helper()
				proxy, ch := startProxy(t, node.Addr()), admin(t, node)
				q := queue(t, ch, nil)
				in := collect(t, node, q)
				var refused sync.Map
				p := newPublisher(t, amqp.PublisherConfig{
					URL: rabbit.URL(proxy.addr()), Structured: target.structured, Prefix: target.prefix,
					Address: func(e *message.RawMessage) (string, string, error) {
						if _, ok := refused.Load(e.ID()); ok {
							return target.refusing[0], target.refusing[1], nil
						}
						return "", q, nil
					},
				})
				return luatxtest.PublisherTarget{
					Publisher: p, Received: in.received, Break: proxy.outage, Refuse: func(id string) { refused.Store(id, true) },
				}
			})
		})
	}
}

// TestRejectionDoesNotAffectTheOtherEventsOfABatch checks the result of each rejection by a broker.
func TestRejectionDoesNotAffectTheOtherEventsOfABatch(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	ch := admin(t, node)
	good := queue(t, ch, nil)
	full := queue(t, ch, amqp091.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	in := collect(t, node, good)
	p := newPublisher(t, amqp.PublisherConfig{
		URL: rabbit.URL(node.Addr()),
		Address: func(e *message.RawMessage) (string, string, error) {
			exchange, key, _ := strings.Cut(e.Destination(), "/")
			if exchange == "nowhere" {
				return "", "", errors.New("nobody wants it")
			}
			return exchange, key, nil
		},
		Change: func(e *message.RawMessage, m *amqp091.Publishing) {
			if e.Subject() == "expires" {
				m.Expiration = "never"
			}
		},
	})
	filling := event("filling", "destination", "/"+full)
	redistest.Must(t, errors.Join(p.Publish(soon(t), []*message.RawMessage{filling})...))
	events := []*message.RawMessage{
		event("a", "destination", "/"+good),
		event("unroutable", "destination", "/none"),
		event("b", "destination", "/"+good, "partitionkey", "lane"),
		event("no-exchange", "destination", "none/x", "partitionkey", "lane"),
		event("behind", "destination", "/"+good, "partitionkey", "lane"),
		event("again", "destination", "none/y"),
		event("full", "destination", "/"+full),
		event("large", "destination", "/"+good),
		event("wide", "destination", "/"+good, "comment", strings.Repeat("x", 200_000)),
		event("nowhere", "destination", "nowhere/"),
		event("long", "destination", "/"+strings.Repeat("k", 256)),
		event("odd", "destination", "/"+good, "datacontenttype", "application/cloudevents+xml"),
		event("property", "destination", "/"+good, "subject", "expires"),
		event("other-lane", "destination", "/"+good, "partitionkey", "other"),
		event("c", "destination", "/"+good),
	}
	events[7].Data = bytes.Repeat([]byte("x"), 2<<20)
	errs := p.Publish(soon(t), events)
	want := map[string]struct {
		class            string
		later, permanent bool
		is               error
	}{
		"a": {}, "b": {}, "c": {}, "other-lane": {},
		"unroutable":  {class: "unroutable", is: amqp.ErrUnroutable},
		"no-exchange": {class: "amqp_404"}, "again": {class: "amqp_404"},
		"behind": {later: true},
		"full":   {class: "nacked", later: true, is: amqp.ErrNacked},
		"large":  {class: "amqp_406", permanent: true},
		"wide":   {class: "malformed", permanent: true}, "odd": {class: "malformed", permanent: true},
		"nowhere": {class: "unrouted"}, "long": {class: "unrouted"},
		"property": {class: "amqp_406", permanent: true},
	}
	for i, e := range events {
		w, err := want[e.ID()], errs[i]
		if (err == nil) != (w.class == "" && !w.later) {
			t.Errorf("%s: %v", e.ID(), err)
			continue
		}
		var c relay.Classified
		if w.class != "" && (!errors.As(err, &c) || c.Class() != w.class) {
			t.Errorf("%s: not of class %s: %v", e.ID(), w.class, err)
		}
		if errors.Is(err, relay.ErrLater) != w.later || message.IsPermanent(err) != w.permanent || errors.Is(err, relay.ErrUnavailable) || (w.is != nil && !errors.Is(err, w.is)) {
			t.Errorf("%s: %v", e.ID(), err)
		}
	}
	eventually(t, "all others to arrive, some of them twice", func() bool {
		ids := in.ids()
		return ids["a"] > 0 && ids["b"] > 0 && ids["c"] > 0 && ids["other-lane"] > 0
	})
	if in.ids()["behind"] != 0 {
		t.Error("an event went out before the one in front of it")
	}
}

func TestPublishedMessageHasTheDocumentedProperties(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	q := queue(t, admin(t, node), nil)
	in := collect(t, node, q)
	p := newPublisher(t, amqp.PublisherConfig{URL: rabbit.URL(node.Addr())})
	e := event("id-1", "destination", q, "correlationid", "c1", "datacontenttype", "application/json", "time", "2026-07-01T12:00:00.25+02:00")
	redistest.Must(t, errors.Join(p.Publish(soon(t), []*message.RawMessage{e})...))
	eventually(t, "it to arrive", func() bool { return len(in.received()) == 1 })
	d := in.raw[0]
	if d.DeliveryMode != amqp091.Persistent || d.MessageId != "id-1" || d.Type != "order.placed" || d.CorrelationId != "c1" || d.ContentType != "application/json" || d.Timestamp.Unix() != 1782900000 {
		t.Errorf("%+v", d)
	}
	if d.Headers["cloudEvents_id"] != "id-1" || d.Headers["cloudEvents_specversion"] != "1.0" {
		t.Errorf("headers %v", d.Headers)
	}
	if at, _ := in.got[0].Time(); at.Nanosecond() != 250_000_000 {
		t.Errorf("its time is %v", at)
	}
}

// TestReturnedEventDoesNotAffectOthersWithoutAMessageID tests events whose ids are too long for the message id.
func TestReturnedEventDoesNotAffectOthersWithoutAMessageID(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	good, long := queue(t, admin(t, node), nil), strings.Repeat("x", 300)
	p := newPublisher(t, amqp.PublisherConfig{URL: rabbit.URL(node.Addr())})
	errs := p.Publish(soon(t), []*message.RawMessage{
		event(long+"1", "destination", good), event(long+"2", "destination", unique("nowhere")), event(long+"3", "destination", good),
	})
	if errs[0] != nil || !errors.Is(errs[1], amqp.ErrUnroutable) || errs[2] != nil {
		t.Errorf("results %v", errs)
	}
}

func TestEventWithoutAQueueIsDroppedIfConfigured(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	p := newPublisher(t, amqp.PublisherConfig{URL: rabbit.URL(node.Addr()), NoMandatory: true, Exchange: "amq.topic"})
	redistest.Must(t, errors.Join(p.Publish(soon(t), []*message.RawMessage{event("1", "destination", "a.b")})...))
}

// TestEventWithoutAConfirmIsNotSent holds back the confirms of a broker that has the event.
func TestEventWithoutAConfirmIsNotSent(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	proxy, q := startProxy(t, node.Addr()), queue(t, admin(t, node), nil)
	in := collect(t, node, q)
	p := newPublisher(t, amqp.PublisherConfig{URL: rabbit.URL(proxy.addr()), Timeout: 500 * time.Millisecond})
	batch := []*message.RawMessage{event("1", "destination", q), event("2", "destination", q)}
	proxy.on(func(f frame) []frame {
		if f.isAck() {
			return nil
		}
		return []frame{f}
	})
	for _, err := range p.Publish(soon(t), batch) {
		if !errors.Is(err, relay.ErrUnavailable) || !errors.Is(err, amqp.ErrUnconfirmed) {
			t.Errorf("without confirms: %v", err)
		}
	}
	eventually(t, "them to arrive all the same", func() bool { return len(in.received()) == 2 })

	ctx, cancel := context.WithCancel(soon(t))
	proxy.on(func(f frame) []frame {
		if f.isAck() {
			cancel() // the relay stops meanwhile
			return nil
		}
		return []frame{f}
	})
	for _, err := range p.Publish(ctx, batch) {
		if !errors.Is(err, relay.ErrLater) {
			t.Errorf("stopped: %v", err)
		}
	}

	proxy.on(func(f frame) []frame {
		if f.isAck() {
			proxy.cut()
			return nil
		}
		return []frame{f}
	})
	for _, err := range p.Publish(soon(t), batch) {
		if !errors.Is(err, relay.ErrUnavailable) {
			t.Errorf("cut before the confirm: %v", err)
		}
	}
	proxy.on(nil)
	redistest.Must(t, errors.Join(p.Publish(soon(t), batch)...))
}

func TestBlockedPublisherIsAnOutageThatEnds(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	proxy, q := startProxy(t, node.Addr()), queue(t, admin(t, node), nil)
	p := newPublisher(t, amqp.PublisherConfig{URL: rabbit.URL(proxy.addr())})
	publish := func() error {
		return errors.Join(p.Publish(soon(t), []*message.RawMessage{event("1", "destination", q)})...)
	}
	redistest.Must(t, publish())
	redistest.Must(t, proxy.inject(blockedFrame))
	eventually(t, "the outage", func() bool {
		err := publish()
		return errors.Is(err, amqp.ErrBlocked) && errors.Is(err, relay.ErrUnavailable)
	})
	redistest.Must(t, proxy.inject(unblockedFrame))
	eventually(t, "its end", func() bool { return publish() == nil })

	var once sync.Once
	proxy.on(func(f frame) []frame { // blocked while waiting for confirms
		if !f.isAck() {
			return []frame{f}
		}
		once.Do(func() { f = blockedFrame })
		return []frame{f}
	})
	if err := publish(); !errors.Is(err, amqp.ErrBlocked) {
		t.Errorf("blocked within a batch: %v", err)
	}
}

func TestEventsFailIfTheConnectionFails(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	for name, cfg := range map[string]amqp.PublisherConfig{
		"network":  {URL: "amqp://guest:guest@127.0.0.1:1/"},
		"amqp_403": {URL: "amqp://guest:wrong@" + node.Addr() + "/"},
		"amqp_530": {URL: "amqp://guest:guest@" + node.Addr() + "/nowhere"},
	} {
		p := newPublisher(t, cfg)
		err := errors.Join(p.Publish(soon(t), []*message.RawMessage{event("1", "destination", "x")})...)
		var c relay.Classified
		if !errors.Is(err, relay.ErrUnavailable) || !errors.As(err, &c) || c.Class() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	recovering := newPublisher(t, amqp.PublisherConfig{Dial: func(context.Context) (*amqp091.Connection, error) {
		return amqp091.DialConfig(rabbit.URL(node.Addr()), amqp091.Config{Recovery: &amqp091.Recovery{}})
	}})
	if err := errors.Join(recovering.Publish(soon(t), []*message.RawMessage{event("1", "destination", "x")})...); err == nil || !strings.Contains(err.Error(), "Recovery") {
		t.Errorf("a connection with a Recovery: %v", err)
	}
	closed := newPublisher(t, amqp.PublisherConfig{URL: rabbit.URL(node.Addr())})
	redistest.Must(t, closed.Close())
	if err := errors.Join(closed.Publish(soon(t), []*message.RawMessage{event("1", "destination", "x")})...); !errors.Is(err, amqp.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	for _, cfg := range []amqp.PublisherConfig{{}, {URL: "http://x"}, {URL: "amqp://x", Timeout: -1}} {
		if _, err := amqp.NewPublisher(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// TestConfirmedEventsSurviveAKilledBroker also checks that Publisher and Subscriber reconnect.
func TestConfirmedEventsSurviveAKilledBroker(t *testing.T) {
	if os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("restarts a broker: set LUATX_VERIFY=1")
	}
	t.Parallel()
	rabbit.Need(t)
	node, err := rabbit.Start(t.Context())
	redistest.Must(t, err)
	t.Cleanup(func() { redistest.Must(t, node.Close()) })
	q := lasting(t, node)
	p := newPublisher(t, amqp.PublisherConfig{URL: rabbit.URL(node.Addr())})
	var events []*message.RawMessage
	for i := range 100 {
		events = append(events, event(fmt.Sprint("event-", i), "destination", q))
	}
	redistest.Must(t, errors.Join(p.Publish(soon(t), events)...))
	sub := newSubscriber(t, amqp.SubscriberConfig{URL: rabbit.URL(node.Addr()), Queue: q})
	in, stop := subscribe(t, sub)
	defer stop()
	first := <-in
	redistest.Must(t, node.Kill())
	for _, err := range p.Publish(soon(t), events[:1]) {
		if !errors.Is(err, relay.ErrUnavailable) {
			t.Errorf("the broker is dead: %v", err)
		}
	}
	redistest.Must(t, node.Run(t.Context()))
	first.Ack() // its connection is lost
	seen := map[string]bool{}
	for len(seen) < len(events) {
		select {
		case msg := <-in:
			seen[msg.ID()] = true
			msg.Ack()
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d events are there", len(seen), len(events))
		}
	}
	redistest.Must(t, errors.Join(p.Publish(soon(t), events[:1])...))
}

// lasting declares a queue that has survived a kill of the broker. A killed broker may forget a new queue and its confirmed
// messages; 3.10 does so one time in 25.
func lasting(t *testing.T, node *rabbit.Node) string {
	t.Helper()
	channel := func() *amqp091.Channel {
		conn, err := amqp091.Dial(rabbit.URL(node.Addr()))
		redistest.Must(t, err)
		ch, err := conn.Channel()
		redistest.Must(t, err)
		return ch
	}
	for {
		name := queue(t, channel(), nil)
		redistest.Must(t, node.Kill())
		redistest.Must(t, node.Run(t.Context()))
		if _, err := channel().QueueDeclarePassive(name, true, false, false, false, nil); err == nil {
			return name
		}
	}
}
