// Package brokertest holds what the tests of publishers and subscribers share, whatever the broker.
package brokertest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// Mailbox is a destination that keeps the events that it is given.
type Mailbox struct {
	mu      sync.Mutex
	got     []*message.RawMessage
	refused map[string]bool
	down    bool
}

// Take keeps a copy of an event. It returns an error if the mailbox is out of reach or refuses the event.
func (m *Mailbox) Take(event *message.RawMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.down:
		return relay.Unavailable(errors.New("destination unreachable"))
	case m.refused[event.ID()]:
		return message.Permanent(errors.New("refused"))
	}
	m.got = append(m.got, message.NewRaw(bytes.Clone(event.Data), maps.Clone(event.Attributes), nil))
	return nil
}

// Collect keeps and acknowledges what arrives, until the channel is closed.
func (m *Mailbox) Collect(in <-chan *message.RawMessage) {
	for event := range in {
		if err := m.Take(event); err != nil {
			event.Nack(err)
		} else {
			event.Ack()
		}
	}
}

// ChangeLast changes the event that arrived last.
func (m *Mailbox) ChangeLast(change func(event *message.RawMessage)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m.got[len(m.got)-1])
}

// Refuses reports whether the mailbox refuses the event of an id.
func (m *Mailbox) Refuses(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused[id]
}

// Target is a publisher that publishes to the mailbox, as luatxtest tests it.
func (m *Mailbox) Target(p relay.Publisher) luatxtest.PublisherTarget {
	return luatxtest.PublisherTarget{
		Publisher: p,
		Received: func() []*message.RawMessage {
			m.mu.Lock()
			defer m.mu.Unlock()
			return slices.Clone(m.got)
		},
		Break: func() (mend func()) {
			m.setDown(true)
			return func() { m.setDown(false) }
		},
		Refuse: func(id string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.refused == nil {
				m.refused = map[string]bool{}
			}
			m.refused[id] = true
		},
	}
}

func (m *Mailbox) setDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

// Next receives a message, or ends the test.
func Next(t testing.TB, in <-chan *message.RawMessage) *message.RawMessage {
	t.Helper()
	select {
	case msg, ok := <-in:
		if !ok {
			t.Fatal("the channel was closed")
		}
		return msg
	case <-time.After(time.Minute):
		t.Fatal("no message arrived")
	}
	return nil
}

// Event is an event with these attributes, in pairs of name and value, beside those that every event has.
func Event(id string, more ...string) *message.RawMessage {
	attrs := message.Attributes{"specversion": "1.0", "id": id, "source": "/shop", "type": "order.placed", "datacontenttype": "application/json"}
	for i := 0; i < len(more); i += 2 {
		attrs[more[i]] = more[i+1]
	}
	return message.NewRaw(fmt.Appendf(nil, `{"id":%q}`, id), attrs, nil)
}

// Verdict is what an error of a Publisher means to a relay, with its class; empty for nil.
func Verdict(err error) string {
	if err == nil {
		return ""
	}
	kind := "counted"
	switch {
	case errors.Is(err, relay.ErrUnavailable):
		kind = "unavailable"
	case errors.Is(err, relay.ErrLater):
		kind = "later"
	case message.IsPermanent(err):
		kind = "permanent"
	}
	if c, ok := errors.AsType[relay.Classified](err); ok {
		kind += " " + c.Class()
	}
	return kind
}
