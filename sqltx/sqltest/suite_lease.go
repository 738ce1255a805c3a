package sqltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
)

// testLeases tests that no other publisher gets an event in flight while its holder lives, even if the holder is slow, and that
// another one gets it after the holder has died.
func testLeases(t *testing.T, s *suite) {
	s.emit(t, "", "a")
	short := func(c *sqltx.OutboxPublisherConfig) { c.Lease = 300 * time.Millisecond }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := s.publisher(short)
	var sources [2]<-chan *message.RawMessage
	for i := range sources {
		var err error
		if sources[i], err = p.Source(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var slow *message.RawMessage
	select {
	case slow = <-sources[0]:
	case slow = <-sources[1]:
	}
	silent(t, sources[0], time.Second/2)
	silent(t, sources[1], time.Second/2)
	slow.Ack()
	cancel()
	p.Wait()
	s.wantRows(t, 1, s.outbox, "published = TRUE")

	s.emit(t, "k", "b", "c") // claimed by a process that dies: nothing renews the lease
	s.exec(t, "UPDATE "+s.outbox+" SET lease = 'dead', attempts = 1, next_attempt_at = "+s.Dialect.NowMillis+" + 400 WHERE published = FALSE")
	other := s.source(t, s.publisher(short))
	start := time.Now()
	ack(t, other, "b", "c")
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("handed out %v after it was claimed", took)
	}
	// An event that crashes its process each time is parked, too.
	err := s.transact(t.Context(), func(ctx context.Context) error {
		if err := sqltx.Emit(ctx, s.outboxConfig(), events("", "poison")...); err != nil {
			return err
		}
		_, err := sqltx.ExecutorFromContext(ctx, s.db).ExecContext(ctx, "UPDATE "+s.outbox+" SET attempts = 10 WHERE published = FALSE")
		return err
	})
	must(t, err)
	eventually(t, "it is parked", func() bool { return s.rows(t, s.outbox, "parked = TRUE") == 1 })
}

// seize leases all unpublished events of a table to another owner for an hour.
func (s *suite) seize(t *testing.T, table string) {
	t.Helper()
	s.exec(t, fmt.Sprintf("UPDATE %s SET lease = 'other', attempts = 7, next_attempt_at = %s + 3600000 WHERE published = FALSE", table, s.Dialect.NowMillis))
}

// testStaleOwner tests that an owner whose events another one has claimed neither settles them, unless it has published them, nor
// renews their leases.
func testStaleOwner(t *testing.T, s *suite) {
	s.emit(t, "", "ack", "nack", "park", "release", "untried", "parked meanwhile")
	source, stop := begin(t, s.publisher(func(c *sqltx.OutboxPublisherConfig) { c.Lease = 3 * time.Second }))
	held := map[string]*message.RawMessage{}
	for range 6 {
		msg := receive(t, source)
		held[name(t, msg)] = msg
	}
	s.seize(t, s.outbox)
	last := s.count(t, "SELECT MAX(id) FROM "+s.outbox)
	s.exec(t, "UPDATE "+s.outbox+" SET parked = TRUE, lease = NULL WHERE id = ?", last)
	s.wantRows(t, 1, s.outbox, "parked = TRUE")
	s.emit(t, "", "renewed")
	renewed := receive(t, source)
	leaseEnd := func() int { return s.count(t, "SELECT next_attempt_at FROM "+s.outbox+" WHERE lease <> 'other'") }
	claimed := leaseEnd()
	eventually(t, "the leases are renewed", func() bool { return leaseEnd() > claimed })
	held["ack"].Ack()
	held["parked meanwhile"].Ack()
	held["nack"].Nack(errors.New("the broker said no"))
	held["park"].Nack(message.Permanent(errors.New("the broker said never")))
	held["release"].Release()
	held["untried"].Nack(untried{message.RetryAfter(errors.New("the broker is down"), time.Minute)})
	renewed.Ack()
	stop()
	s.wantRows(t, 3, s.outbox, "published = TRUE AND parked = FALSE")
	s.wantRows(t, 4, s.outbox, "lease = 'other' AND attempts = 7 AND parked = FALSE AND last_error IS NULL", "next_attempt_at > "+s.Dialect.NowMillis+" + 1800000")
}

// testLeaseEnd tests that a source hands out no event whose lease it cannot renew, and that this counts no attempt. Without the
// table, no statement of the source works.
func testLeaseEnd(t *testing.T, s *suite) {
	for last, isSeized := range map[string]bool{"later": true, "ready": false} {
		s.emit(t, "", "buffered", "ready")
		source, stop := begin(t, s.publisher(func(c *sqltx.OutboxPublisherConfig) { c.BatchSize, c.Attempts, c.Lease = 1, 1, 2*time.Second }))
		eventually(t, "both are claimed", func() bool { return s.rows(t, s.outbox, "lease IS NOT NULL AND published = FALSE") == 2 })
		away := Table("away")
		s.exec(t, "ALTER TABLE "+s.outbox+" RENAME TO "+away)
		eventually(t, "their leases end", func() bool { return s.rows(t, away, "next_attempt_at > "+s.Dialect.NowMillis) == 0 })
		if isSeized {
			s.seize(t, away)
		}
		s.exec(t, "ALTER TABLE "+away+" RENAME TO "+s.outbox)
		if isSeized {
			s.emit(t, "", "later")
		}
		ack(t, source, "buffered", last)
		stop()
		s.exec(t, "DELETE FROM "+s.outbox)
	}
}

// testLeaseInDrain tests that a stopping publisher keeps the events that it has handed out until they are settled.
func testLeaseInDrain(t *testing.T, s *suite) {
	const lease = 300 * time.Millisecond
	source, stop := begin(t, s.publisher(func(c *sqltx.OutboxPublisherConfig) { c.Lease, c.DrainTimeout = lease, patience }))
	s.emit(t, "", "a")
	msg := receive(t, source)
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	silent(t, s.source(t, s.publisher()), 3*lease)
	msg.Ack()
	<-stopped
	s.wantRows(t, 1, s.outbox, "published = TRUE AND attempts = 1")
}
