package sqltest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

// TestPartitionedTablesWorkAndAreCleanedUp uses the partitions of docs/sql.md, in which two rows may have the same ctid.
func TestPartitionedTablesWorkAndAreCleanedUp(t *testing.T) {
	t.Parallel()
	d := sqltest.Postgres(t)
	db, cfg := d.Open(t), childOf(d)
	run := func(statement string) {
		t.Helper()
		execute(t, db, statement)
	}
	run(fmt.Sprintf(sqltx.PostgresInboxSchema, cfg.Inbox) + " PARTITION BY HASH (message_id)")
	for i := range 4 {
		run(fmt.Sprintf("CREATE TABLE %[1]s_%[2]d PARTITION OF %[1]s FOR VALUES WITH (MODULUS 4, REMAINDER %[2]d)", cfg.Inbox, i))
	}
	for i := range 200 {
		run(fmt.Sprintf("INSERT INTO %s (subscriber, source, message_id, created_at) VALUES ('s', '', 'm%d', now() - interval '%d days')", cfg.Inbox, i, i%2*30))
	}
	if n, err := sqltx.Cleanup(t.Context(), sqltx.CleanupConfig{DB: db, Table: cfg.Inbox, ChunkSize: 10}); n != 100 || err != nil {
		t.Errorf("%d rows deleted, %v", n, err)
	}
	if n := number(t, db, "SELECT count(*) FROM "+cfg.Inbox+" WHERE created_at > now() - interval '1 day'"); n != 100 {
		t.Errorf("%d young rows are left", n)
	}

	run(strings.Replace(fmt.Sprintf(sqltx.PostgresOutboxSchema, cfg.Outbox), " PRIMARY KEY", "", 1) + " PARTITION BY RANGE (created_at)")
	run("ALTER TABLE " + cfg.Outbox + " ADD PRIMARY KEY (id, created_at)")
	run("CREATE TABLE " + cfg.Outbox + "_past PARTITION OF " + cfg.Outbox + " FOR VALUES FROM (MINVALUE) TO ('2026-01-01')")
	run("CREATE TABLE " + cfg.Outbox + "_now PARTITION OF " + cfg.Outbox + " FOR VALUES FROM ('2026-01-01') TO (MAXVALUE)")
	fill(t, db, cfg.Outbox, 60)
	run("UPDATE " + cfg.Outbox + " SET created_at = '2025-01-01' WHERE id % 2 = 0")
	events, stop := sourceOf(t, db, cfg.Outbox)
	seen := map[string]bool{}
	for range 60 {
		var msg *message.RawMessage
		select {
		case msg = <-events:
		case <-time.After(20 * time.Second):
			t.Fatal("timed out waiting for an event")
		}
		seen[msg.ID()] = true
		msg.Ack()
	}
	stop()
	if len(seen) != 60 {
		t.Errorf("%d events", len(seen))
	}
	if n := number(t, db, "SELECT count(*) FROM "+cfg.Outbox+" WHERE published = FALSE"); n != 0 {
		t.Errorf("%d are not published", n)
	}
}
