package sqltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
)

// testInbox tests that a message counts once for a subscriber, and that the inbox does not skip it for another one or after a
// failure.
func testInbox(t *testing.T, s *suite) {
	runs := 0
	fail := errHandler
	handle := func(ctx context.Context, id string) ([]string, error) {
		runs++
		return []string{"e"}, errors.Join(s.enter(ctx, id+strings.Repeat("x", runs)), fail)
	}
	router := s.stack(t, handle)
	deliver := func(wantOutcome string, wantRuns int) {
		t.Helper()
		msg, outcome := order("1")
		outputs, _ := router.Process(t.Context(), msg)
		if *outcome != wantOutcome || runs != wantRuns || len(outputs) != 0 {
			t.Errorf("%q after %d runs, want %q after %d; %d outputs", *outcome, runs, wantOutcome, wantRuns, len(outputs))
		}
	}
	deliver("nacked", 1)
	fail = nil
	deliver("acked", 2)
	deliver("acked", 2)
	deliver("acked", 2)
	s.wantRows(t, 1, s.business)
	s.wantRows(t, 1, s.outbox)

	// Ids are unique within a source and subscriber, and are compared byte by byte.
	for _, other := range []struct{ subscriber, source, id string }{
		{"billing", "/shop", "1"},
		{"orders", "/market", "1"},
		{"orders", "/shop", "1 "},
		{"orders", "/shop", "a"},
		{"orders", "/shop", "A"},
		{"orders", "/shop", "ä"},
		{"orders", "/shop", strings.Repeat("i", 255)},
	} {
		cfg := s.inboxConfig()
		cfg.Subscriber = other.subscriber
		ran, err := s.claim(t, cfg, message.Attributes{message.AttrID: other.id, message.AttrSource: other.source})
		if !ran || err != nil {
			t.Errorf("%v was taken for a duplicate: %v", other, err)
		}
		if ran, err = s.claim(t, cfg, message.Attributes{message.AttrID: other.id, message.AttrSource: other.source}); ran || err != nil {
			t.Errorf("%v was not taken for a duplicate: %v", other, err)
		}
	}
	for text, attrs := range map[string]message.Attributes{
		"inbox: message has no ID attribute": {},
		"at most 255":                        {message.AttrID: strings.Repeat("i", 256)},
		"is not storable text":               {message.AttrID: "a\x00"},
	} {
		if _, err := s.claim(t, s.inboxConfig(), attrs); err == nil || !strings.Contains(err.Error(), text) || !message.IsPermanent(err) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	byPayment := s.inboxConfig()
	byPayment.MessageID = paymentOf
	for i, payment := range []string{"p1", "p1", "p2", "p1"} { // without ids, or with different ids
		attrs := message.Attributes{"payment": payment}
		if i == 1 {
			attrs[message.AttrID] = "another"
		}
		if ran, err := s.claim(t, byPayment, attrs); ran != (i == 0 || i == 2) || err != nil {
			t.Errorf("delivery %d of %s: ran %t, %v", i, payment, ran, err)
		}
	}
	for text, payment := range map[string]any{"identity without an ID": "", "no payment": nil, "at most 255": strings.Repeat("p", 256)} {
		if ran, err := s.claim(t, byPayment, message.Attributes{"payment": payment}); ran || err == nil || !strings.Contains(err.Error(), text) || !message.IsPermanent(err) {
			t.Errorf("ran %t, %v, want %q", ran, err, text)
		}
	}
	twice := s.tx().Wrap(sqltx.InboxMiddleware(s.inboxConfig()).Wrap(sqltx.InboxMiddleware(s.inboxConfig()).Wrap(nil)))
	if _, err := twice(t.Context(), message.New(nil, message.Attributes{message.AttrID: "twice"}, nil)); err == nil || !strings.Contains(err.Error(), "leave one out") {
		t.Errorf("an inbox inside of an inbox: %v", err)
	}
	none := sqltx.InboxMiddleware(s.inboxConfig()).Wrap(nil)
	if _, err := none(t.Context(), message.New(nil, nil, nil)); err == nil || err.Error() != "inbox: no transaction in context; put TxMiddleware before it" {
		t.Error(err)
	}
}

// paymentOf identifies a message by its payment.
func paymentOf(msg *message.Message) (message.Identity, error) {
	payment, ok := msg.Attributes["payment"].(string)
	if !ok {
		return message.Identity{}, errors.New("no payment")
	}
	return message.Identity{ID: payment}, nil
}

// testEventIDs tests that the id of an event is derived from the result of MessageID.
func testEventIDs(t *testing.T, s *suite) {
	cfg := s.inboxConfig()
	cfg.MessageID = paymentOf
	process := message.Chain(s.tx(), sqltx.InboxMiddleware(cfg), sqltx.OutboxMiddleware(s.outboxConfig())).Wrap(
		func(context.Context, *message.Message) ([]*message.Message, error) {
			return []*message.Message{message.New("paid", message.Attributes{message.AttrType: "paid", message.AttrSource: "/bank"}, nil)}, nil
		})
	payments := []string{"p1", "p2", "p1"}
	for i, payment := range payments {
		attrs := message.Attributes{"payment": payment}
		if i == 2 {
			attrs[message.AttrID] = "another"
		}
		if _, err := process(t.Context(), message.New(nil, attrs, nil)); err != nil {
			t.Fatal(err)
		}
		s.exec(t, "DELETE FROM "+s.inbox) // as after the retention
	}
	ids := map[string]bool{}
	source := s.source(t, s.publisher())
	for range payments {
		msg := receive(t, source)
		ids[msg.ID()] = true
		msg.Ack()
	}
	if len(ids) != 2 {
		t.Errorf("the event ids are %v, want one for each payment", ids)
	}
}

// claim runs the inbox in a transaction and reports whether the next step ran.
func (s *suite) claim(t testing.TB, cfg sqltx.InboxConfig, attrs message.Attributes) (ran bool, err error) {
	t.Helper()
	process := s.tx().Wrap(sqltx.InboxMiddleware(cfg).Wrap(
		func(context.Context, *message.Message) ([]*message.Message, error) {
			ran = true
			return nil, nil
		}))
	_, err = process(t.Context(), message.New(nil, attrs, nil))
	return ran, err
}

// testInboxRace delivers messages many times concurrently, with a handler that sometimes fails.
func testInboxRace(t *testing.T, s *suite) {
	var runs atomic.Int64
	router := s.stack(t, func(ctx context.Context, id string) ([]string, error) {
		if runs.Add(1)%3 == 0 {
			return nil, errHandler
		}
		return []string{id}, s.enter(ctx, id)
	})
	const messages, copies = 20, 6
	var all sync.WaitGroup
	for _, id := range numbered("m", messages) {
		for range copies {
			all.Go(func() {
				for {
					msg, outcome := order(id)
					_, err := router.Process(t.Context(), msg)
					if *outcome == "acked" {
						return
					}
					if !errors.Is(err, errHandler) && !s.Dialect.Retryable(err) {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	for _, table := range []string{s.business, s.inbox, s.outbox} {
		s.wantRows(t, messages, table)
	}
}

// testOutbox tests what the outbox stores for outputs.
func testOutbox(t *testing.T, s *suite) {
	router := s.stack(t, func(_ context.Context, id string) ([]string, error) { return []string{id + "a", id + "b"}, nil })
	at := time.Now().UTC().Truncate(time.Millisecond)
	for range 2 {
		msg, _ := order("1")
		msg.Attributes[message.AttrTime] = at
		if _, err := router.Process(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
		s.exec(t, "DELETE FROM "+s.inbox) // as after the retention
	}
	seen := map[string]int{}
	source := s.source(t, s.publisher())
	for range 4 {
		msg := receive(t, source)
		seen[fmt.Sprint(name(t, msg), msg.Attributes)]++
		if when, ok := msg.Time(); !ok || !when.Equal(at) {
			t.Errorf("the event has the time %v, the message %v", when, at)
		}
		if msg.Type() != "order.placed" || msg.Destination() != "order-events" || msg.CorrelationID() != "1" || msg.Source() != "/orders" {
			t.Errorf("%v", msg.Attributes)
		}
		msg.Ack()
	}
	if len(seen) != 2 { // another run of the handler creates the same events
		t.Errorf("%v", seen)
	}
	s.wantRows(t, 4, s.outbox, "topic = 'order-events' AND event_type = 'order.placed'")
	none := sqltx.OutboxMiddleware(s.outboxConfig()).Wrap(func(context.Context, *message.Message) ([]*message.Message, error) {
		t.Error("the handler ran without a transaction")
		return nil, nil
	})
	if _, err := none(t.Context(), message.New(nil, nil, nil)); err == nil || err.Error() != "outbox: no transaction in context; put TxMiddleware before it" {
		t.Error(err)
	}
}

// testFidelity tests that data and attributes are published unchanged.
func testFidelity(t *testing.T, s *suite) {
	attrs := func(contentType string) message.Attributes {
		return message.Attributes{
			message.AttrID: "1", message.AttrSource: "/o", message.AttrType: "t", message.AttrDataContentType: contentType,
			"number": int64(9007199254740993), "flag": true, "text": "ä\u2028\x01\"'\\", message.AttrDestination: "elsewhere",
		}
	}
	tests := []struct {
		contentType string
		data        any
		want        string
	}{
		{"application/json", []byte(`{"b": 1.0, "a": 12345678901234567890, "a2": "\u0000<>&"}`), `{"b": 1.0, "a": 12345678901234567890, "a2": "\u0000<>&"}`},
		{"application/json", []byte(`"text"`), `"text"`},
		{"application/json", map[string]string{"k": "<é>"}, `{"k":"<é>"}`},
		{"text/plain", "plain ? $1 text", "plain ? $1 text"},
		{"application/octet-stream", []byte{0, 255, 1, '"'}, "\x00\xff\x01\""},
		{"application/json", nil, ""},
		{"application/json", []byte("null"), "null"},
		{"application/octet-stream", bytes.Repeat([]byte{0xfe}, 300_000), strings.Repeat("\xfe", 300_000)},
	}
	err := s.transact(t.Context(), func(ctx context.Context) error {
		for _, test := range tests {
			if err := sqltx.Emit(ctx, s.outboxConfig(), message.New(test.data, attrs(test.contentType), nil)); err != nil {
				return err
			}
		}
		return nil
	})
	must(t, err)
	source := s.source(t, s.publisher())
	for i, test := range tests {
		msg := receive(t, source)
		if string(msg.Data) != test.want {
			t.Errorf("%d: %.100q, want %.100q", i, msg.Data, test.want)
		}
		for key, want := range attrs(test.contentType) {
			if got := msg.Attributes[key]; got != want {
				t.Errorf("%d: %s is %#v, want %#v", i, key, got, want)
			}
		}
		msg.Ack()
	}
}
