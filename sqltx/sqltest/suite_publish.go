package sqltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/sqltx"
)

// testPublish tests that an ack marks an event published, also after the context has ended, and that the event is not handed out
// again.
func testPublish(t *testing.T, s *suite) {
	s.emit(t, "", numbered("a", 25)...)
	p := s.publisher(func(c *sqltx.OutboxPublisherConfig) { c.BatchSize = 10 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	source, err := p.Source(ctx)
	must(t, err)
	var last *message.RawMessage
	var names []string
	for range 25 {
		last = receive(t, source)
		names = append(names, name(t, last))
		if len(names) < 25 {
			last.Ack()
		}
	}
	if slices.Sort(names); !slices.Equal(names, numbered("a", 25)) {
		t.Errorf("%q", names)
	}
	eventually(t, "24 are published", func() bool { return s.rows(t, s.outbox, "published = TRUE") == 24 })
	silent(t, source, 50*time.Millisecond)
	cancel()
	if _, open := <-source; open {
		t.Error("an event after the end")
	}
	last.Ack()
	p.Wait()
	s.wantRows(t, 25, s.outbox, "published = TRUE")
}

// testFailures tests that failed events are retried until their attempts are used up, and that a release counts no attempt. It
// also tests that a permanent error parks an event at once, and that an event waits as long as the error of its destination
// requests.
func testFailures(t *testing.T, s *suite) {
	s.emit(t, "", "a")
	p := s.publisher(func(c *sqltx.OutboxPublisherConfig) { c.Attempts = 3 })
	source := s.source(t, p)
	for range 5 {
		receive(t, source).Release()
		receive(t, source).Nack(untried{message.RetryAfter(errors.New("the broker is down"), time.Millisecond)})
	}
	receive(t, source).Nack(untried{errors.New("the broker is down")})
	receive(t, source).Nack(relay.Later(errors.New("it has to wait its turn"), time.Millisecond))
	receive(t, source).Nack(relay.Unavailable(errors.New("the broker is down")))
	for i := range 3 {
		receive(t, source).Nack(fmt.Errorf("broker said no, %d", i))
	}
	eventually(t, "it is parked", func() bool { return s.rows(t, s.outbox, "parked = TRUE") == 1 })
	silent(t, source, 50*time.Millisecond)
	s.emit(t, "", "b")
	receive(t, source).Nack(message.Permanent(errors.New("too large\x00")))
	eventually(t, "it is parked", func() bool { return s.rows(t, s.outbox, "parked = TRUE") == 2 })
	s.emit(t, "", "c")
	receive(t, source).Nack(message.RetryAfter(errors.New("later"), time.Hour))
	eventually(t, "it waits", func() bool { return s.rows(t, s.outbox, "last_error = 'later' AND lease IS NULL") == 1 })
	s.emit(t, "", "d")
	receive(t, source).Nack(relay.Later(errors.New("it has to wait its turn"), time.Hour))
	eventually(t, "it is given back", func() bool { return s.rows(t, s.outbox, "attempts = 0 AND lease IS NULL AND published = FALSE") == 1 })
	silent(t, source, 50*time.Millisecond)
}

type untried struct{ error }

func (untried) Untried() bool { return true }

// testLateCommit tests that an event is published even if it commits after later ones were published.
func testLateCommit(t *testing.T, s *suite) {
	source := s.source(t, s.publisher())
	begun, committed := make(chan struct{}), make(chan struct{})
	if s.Locked {
		close(committed) // no other transaction can write meanwhile
	}
	done := make(chan error, 1)
	go func() {
		done <- s.transact(t.Context(), func(ctx context.Context) error {
			err := sqltx.Emit(ctx, s.outboxConfig(), events("", "early")...)
			close(begun)
			<-committed
			return err
		})
	}()
	<-begun
	s.emit(t, "", numbered("late", 30)...)
	seen := map[string]bool{}
	for range 30 {
		msg := receive(t, source)
		seen[name(t, msg)] = true
		msg.Ack()
	}
	if !s.Locked {
		if seen["early"] {
			t.Error("published before its commit")
		}
		close(committed)
	}
	must(t, <-done)
	msg := receive(t, source)
	seen[name(t, msg)] = true
	msg.Ack()
	if !seen["early"] || len(seen) != 31 {
		t.Errorf("%d events, early: %v", len(seen), seen["early"])
	}
}

// testShutdown tests that a source that ends gives its events back without counting attempts.
func testShutdown(t *testing.T, s *suite) {
	s.emit(t, "", numbered("a", 10)...)
	s.emit(t, "k", numbered("b", 10)...)
	source, stop := begin(t, s.publisher(func(c *sqltx.OutboxPublisherConfig) { c.DrainTimeout = 50 * time.Millisecond }))
	msg := receive(t, source)
	stop()
	if n := s.rows(t, s.outbox, "attempts = 0 AND lease IS NULL"); n < 19 {
		t.Errorf("%d of 19 events were given back", n)
	}
	msg.Ack() // the publisher has stopped waiting for it
	s.wantRows(t, 1, s.outbox, "published = TRUE")
	other := s.source(t, s.publisher())
	for range 19 {
		receive(t, other).Ack()
	}
}

// testParked tests the operations on parked events, and that later events of the key wait for them.
func testParked(t *testing.T, s *suite) {
	second := s.outboxConfig()
	second.Table = Table("outbox")
	must(t, second.Init(t.Context()))
	t.Cleanup(func() { s.exec(t, "DROP TABLE "+second.Table) })
	p := s.publisher(func(c *sqltx.OutboxPublisherConfig) { c.Attempts = 1 })
	source := s.source(t, p)
	s.emit(t, "k", "a", "b", "c")
	s.emit(t, "", numbered("x", 130)...)
	for range 131 {
		receive(t, source).Nack(errors.New("no"))
	}
	silent(t, source, 100*time.Millisecond)
	eventually(t, "all are parked", func() bool { return s.rows(t, s.outbox, "parked = TRUE") == 131 })
	var ids []int64
	for e, err := range p.Parked(t.Context()) {
		must(t, err)
		if e.Attempts != 1 || e.Error != "no" || e.Topic != "order-events" || e.Type != "order.placed" || e.Message == nil || !strings.HasPrefix(e.Message.ID(), "event-") {
			t.Errorf("%+v", e)
		}
		ids = append(ids, e.ID)
	}
	if len(ids) != 131 || !slices.IsSorted(ids) {
		t.Fatalf("%d parked events", len(ids))
	}
	if n, err := p.Discard(t.Context(), ids[1:]...); n != 130 || err != nil {
		t.Errorf("%d discarded, %v", n, err)
	}
	if n, err := p.Rearm(t.Context(), ids...); n != 1 || err != nil {
		t.Errorf("%d re-armed, %v", n, err)
	}
	ack(t, source, "a", "b", "c")

	// With SkipParked, the later events continue, and the parked one follows when it is re-armed.
	eventually(t, "all is published", func() bool { return s.rows(t, s.outbox, "published = FALSE") == 0 })
	on := s.publisher(func(c *sqltx.OutboxPublisherConfig) {
		c.Table, c.Attempts, c.SkipParked = second.Table, 1, true
	})
	source = s.source(t, on)
	s.emitTo(t, second, "q", "d", "e", "f")
	receive(t, source).Nack(errors.New("no"))
	ack(t, source, "e", "f")
	eventually(t, "it is parked", func() bool { return s.rows(t, second.Table, "parked = TRUE") == 1 })
	s.emitTo(t, second, "q", "g", "h")
	ack(t, source, "g", "h")
	for e, err := range on.Parked(t.Context()) {
		if n, rearmErr := on.Rearm(t.Context(), e.ID); n != 1 || err != nil || rearmErr != nil {
			t.Error(n, err, rearmErr)
		}
	}
	ack(t, source, "d")
	eventually(t, "all is published", func() bool { return s.rows(t, second.Table, "published = FALSE") == 0 })
}

// testCleanup tests that a cleanup deletes old rows, but neither new nor unpublished ones.
func testCleanup(t *testing.T, s *suite) {
	s.emit(t, "", numbered("a", 30)...)
	s.exec(t, "UPDATE "+s.outbox+" SET published = TRUE WHERE id % 3 <> 0")
	old := func(table, condition string) {
		moment := strings.ReplaceAll(s.Dialect.Ago, "?", fmt.Sprint((8 * 24 * time.Hour).Milliseconds()))
		s.exec(t, strings.ReplaceAll("UPDATE "+table+" SET created_at = MOMENT WHERE "+condition, "MOMENT", moment))
	}
	old(s.outbox, "id % 2 = 0")
	waiting, young := s.rows(t, s.outbox, "published = FALSE"), s.rows(t, s.outbox, "published = TRUE AND id % 2 = 1")
	cfg := sqltx.OutboxCleanup(s.outboxConfig())
	cfg.ChunkSize = 3
	ctx, cancel := context.WithCancel(t.Context())
	done, err := sqltx.StartCleanup(ctx, cfg)
	must(t, err)
	eventually(t, "the old ones are gone", func() bool { return s.rows(t, s.outbox) == waiting+young })
	cancel()
	<-done
	s.wantRows(t, waiting, s.outbox, "published = FALSE")

	for _, id := range numbered("m", 10) {
		s.exec(t, "INSERT INTO "+s.inbox+" (subscriber, source, message_id) VALUES ('s', '', ?)", id)
	}
	old(s.inbox, "message_id < 'm0004'")
	inbox := sqltx.InboxCleanup(s.inboxConfig())
	inbox.Condition = " AND message_id <> 'm0000'"
	if n, err := sqltx.Cleanup(t.Context(), inbox); n != 3 || err != nil {
		t.Errorf("%d deleted, %v", n, err)
	}
	inbox.Condition, inbox.Retention = "", time.Millisecond
	eventually(t, "a short retention is kept", func() bool {
		_, err := sqltx.Cleanup(t.Context(), inbox)
		return err == nil && s.rows(t, s.inbox) == 0
	})
	old(s.outbox, "1 = 1")
	if n, err := sqltx.Cleanup(t.Context(), sqltx.CleanupConfig{DB: s.db, Dialect: s.Dialect, Table: s.outbox}); n != young || err != nil {
		t.Errorf("a cleanup without a condition deleted %d events, %v; want the %d that are published", n, err, young)
	}
	s.wantRows(t, waiting, s.outbox)
}
