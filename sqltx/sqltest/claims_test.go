package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

// TestConcurrentClaimsGiveAKeyToAtMostOnePublisher delays both claims before they commit, by an advisory lock in a trigger.
func TestConcurrentClaimsGiveAKeyToAtMostOnePublisher(t *testing.T) {
	t.Parallel()
	d := sqltest.Postgres(t)
	db, table, gate := d.Open(t), sqltest.Table("outbox"), rand.Int32()
	cfg := sqltx.OutboxConfig{DB: db, Table: table, Topic: "events"}
	must(t, cfg.Init(t.Context()))
	for _, statement := range []string{
		`CREATE FUNCTION ` + table + `_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(` + fmt.Sprint(gate) + `); RETURN NEW; END $$`,
		`CREATE TRIGGER gate BEFORE UPDATE ON ` + table + ` FOR EACH ROW WHEN (NEW.lease IS NOT NULL) EXECUTE FUNCTION ` + table + `_gate()`,
	} {
		execute(t, db, statement)
	}
	late, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, sqltx.Emit(sqltx.ContextWithTx(t.Context(), late), cfg, keyed("commits-late")...))
	must(t, sqltx.Transact(t.Context(), db, nil, func(ctx context.Context) error { return sqltx.Emit(ctx, cfg, keyed("commits-first")...) }))
	release := closeGate(t, db, gate)
	first, _ := sourceOf(t, db, table)
	awaitGate(t, db, gate, 1)
	must(t, late.Commit())
	second, _ := sourceOf(t, db, table)
	awaitGate(t, db, gate, 2)
	release()

	either := func(wait time.Duration) *message.RawMessage {
		select {
		case msg := <-first:
			return msg
		case msg := <-second:
			return msg
		case <-time.After(wait):
			return nil
		}
	}
	for range 2 {
		msg := either(30 * time.Second)
		if msg == nil {
			t.Fatal("timed out waiting for an event")
		}
		if other := either(200 * time.Millisecond); other != nil {
			t.Fatalf("%s was handed out beside %s", other.Data, msg.Data)
		}
		msg.Ack()
	}
}

func keyed(name string) []*message.Message {
	return []*message.Message{message.New(name, message.Attributes{
		message.AttrID: name, message.AttrType: "t", message.AttrSource: "s", message.AttrPartitionKey: "k",
	}, nil)}
}

// closeGate delays every transaction that passes the gate until open is called.
func closeGate(t *testing.T, db *sql.DB, gate int32) (open func()) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	must(t, err)
	if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_lock($1)", gate); err != nil {
		t.Fatal(err)
	}
	return func() {
		_, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_unlock($1)", gate)
		if err = errors.Join(err, conn.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func awaitGate(t *testing.T, db *sql.DB, gate int32, n int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		var waiting int
		err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $1", gate).Scan(&waiting)
		switch {
		case err != nil:
			t.Fatal(err)
		case waiting == n:
			return
		case time.Now().After(deadline):
			t.Fatalf("%d claims wait, want %d", waiting, n)
		}
	}
}

// sourceOf starts a publisher that ends with the test or with stop.
func sourceOf(t *testing.T, db *sql.DB, table string) (events <-chan *message.RawMessage, stop func()) {
	t.Helper()
	p := sqltx.NewOutboxPublisher(sqltx.OutboxPublisherConfig{DB: db, Table: table, PollInterval: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	events, err := p.Source(ctx)
	must(t, err)
	stop = sync.OnceFunc(func() { cancel(); p.Wait() })
	t.Cleanup(stop)
	return events, stop
}
