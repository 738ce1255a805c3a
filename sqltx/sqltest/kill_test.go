package sqltest_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

// broker passes messages to children, delivers those without an ack again, and counts published events.
type broker struct {
	t   *testing.T
	cfg childConfig

	mu     sync.Mutex
	queue  []string       // to be delivered
	acks   map[string]int // acks still expected, by id
	events map[string]int // published, by id
	kills  int

	stop    chan struct{}
	running sync.WaitGroup
}

func newBroker(t *testing.T, cfg childConfig) *broker {
	t.Helper()
	return &broker{t: t, cfg: cfg, acks: map[string]int{}, events: map[string]int{}, stop: make(chan struct{})}
}

// run starts one child after the other, and kills each at the end of its life, until stop is closed. A life begins with the
// child's first report, so that children make progress on a busy machine, too.
func (b *broker) run(life time.Duration) {
	for running := true; running; {
		ctx, cancel := context.WithCancel(context.Background())
		ended, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			b.child(ctx, sync.OnceFunc(func() { time.AfterFunc(life, func() { close(over) }) }))
		}()
		select {
		case <-b.stop:
			running = false
		case <-over:
			b.mu.Lock()
			b.kills++
			b.mu.Unlock()
		}
		cancel() // SIGKILL
		<-ended
	}
}

// window is the maximum number of messages that a child has at the same time.
const window = 64

// child runs one child until it is killed, and calls reports for each of its reports.
func (b *broker) child(ctx context.Context, reports func()) {
	env, err := json.Marshal(b.cfg)
	if err != nil {
		b.t.Error(err)
		return
	}
	self, err := os.Executable()
	if err != nil {
		b.t.Error(err)
		return
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), envChild+"="+string(env))
	cmd.Stderr = os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if errIn != nil || errOut != nil {
		b.t.Error(errIn, errOut)
		return
	}
	if err := cmd.Start(); err != nil {
		if ctx.Err() == nil {
			b.t.Error(err)
		}
		return
	}
	b.serve(in, out, reports)
	_ = cmd.Wait() // returns an error because the child was killed
	if ctx.Err() == nil {
		b.t.Error("a child ended by itself")
	}
}

func (b *broker) serve(in io.Writer, out io.Reader, reports func()) {
	given := map[string]bool{}
	give := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for b.cfg.Consume && len(given) < window && len(b.queue) > 0 {
			id := b.queue[0]
			b.queue = b.queue[1:]
			if given[id] { // a copy of a message in flight
				b.queue = append(b.queue, id)
				return
			}
			given[id] = true
			_, _ = io.WriteString(in, id+"\n") // a dead child does not read, which the loop below notices
		}
	}
	give()
	for scanner := bufio.NewScanner(out); scanner.Scan(); give() {
		var what, id string
		if n, _ := fmt.Sscan(scanner.Text(), &what, &id); n != 2 {
			continue // truncated
		}
		reports()
		b.mu.Lock()
		switch what {
		case "event":
			b.events[id]++
		case "ack":
			if b.acks[id]--; b.acks[id] == 0 {
				delete(b.acks, id)
			}
			delete(given, id)
		case "nack":
			b.queue = append(b.queue, id)
			delete(given, id)
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range given { // without an ack
		b.queue = append(b.queue, id)
	}
}

// finish waits until no event of the outbox is unpublished, ends the children, and checks the number of published events.
func (b *broker) finish(db *sql.DB, total int) {
	b.t.Helper()
	waitForNone(b.t, "unpublished events", func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return total - len(b.events)
	})
	waitForNone(b.t, "unsettled rows", func() int {
		return number(b.t, db, "SELECT count(*) FROM "+b.cfg.Outbox+" WHERE published = FALSE")
	})
	close(b.stop)
	b.running.Wait()
	again := 0
	for _, n := range b.events {
		again += n - 1
	}
	if len(b.events) != total {
		b.t.Errorf("%d events of %d were published", len(b.events), total)
	}
	b.t.Logf("%d events, %d kills, %d events published again", total, b.kills, again)
}

func (b *broker) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.acks)
}

func tables(t *testing.T, db *sql.DB, cfg childConfig) {
	t.Helper()
	ctx := t.Context()
	must(t, sqltx.InitInbox(ctx, sqltx.InboxConfig{DB: db, Table: cfg.Inbox}))
	must(t, sqltx.InitOutbox(ctx, sqltx.OutboxConfig{DB: db, Table: cfg.Outbox}))
	execute(t, db, "CREATE TABLE "+cfg.Business+" (id VARCHAR(32) NOT NULL)") // without a primary key, so that duplicates are visible
	t.Cleanup(func() {
		for _, table := range []string{cfg.Inbox, cfg.Outbox, cfg.Business} {
			_, _ = db.ExecContext(context.Background(), "DROP TABLE "+table) // of a test server
		}
	})
}

func number(t *testing.T, db *sql.DB, query string) int {
	t.Helper()
	var n int
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func waitFor(t *testing.T, what string, limit time.Duration, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(limit)
	for !condition() {
		select {
		case <-deadline:
			t.Errorf("timed out waiting for: %s", what)
			return
		case <-ticker.C:
		}
	}
}

// waitForNone waits until none is left, as long as the number decreases every minute.
func waitForNone(t *testing.T, what string, left func() int) {
	t.Helper()
	for n := left(); n > 0 && !t.Failed(); {
		before := n
		waitFor(t, fmt.Sprintf("fewer than %d %s", before, what), time.Minute, func() bool {
			n = left()
			return n < before
		})
	}
}

// TestRowsInboxAndOutboxAgreeAfterKilledConsumers kills a service repeatedly, lets its handlers fail at random, and delivers
// some messages twice.
func TestRowsInboxAndOutboxAgreeAfterKilledConsumers(t *testing.T) {
	t.Parallel()
	sqltest.Every(t, func(t *testing.T, d sqltest.Database) {
		db, cfg := d.Open(t), childOf(d)
		cfg.Consume, cfg.Delay = true, 10*time.Millisecond
		tables(t, db, cfg)
		total := size(1500, 10_000)
		b := newBroker(t, cfg)
		for i := range total {
			id := fmt.Sprintf("m%05d", i)
			b.queue, b.acks[id] = append(b.queue, id), 1
			if i%20 == 0 {
				b.queue, b.acks[id] = append(b.queue, id), 2
			}
		}
		b.running.Go(func() { b.run(time.Duration(size(400, 1000)) * time.Millisecond) })
		waitForNone(t, "unacked messages", b.left)
		b.finish(db, total)
		if b.kills < 2 {
			t.Errorf("%d kills", b.kills)
		}
		for what, query := range map[string]string{
			"business rows": "SELECT count(*) FROM " + cfg.Business,
			"business ids":  "SELECT count(DISTINCT id) FROM " + cfg.Business,
			"inbox":         "SELECT count(*) FROM " + cfg.Inbox,
			"outbox":        "SELECT count(*) FROM " + cfg.Outbox,
		} {
			if n := number(t, db, query); n != total {
				t.Errorf("%s: %d, want %d", what, n, total)
			}
		}
	})
}

func TestKilledPublishersPublishEachRow(t *testing.T) {
	t.Parallel()
	sqltest.Every(t, func(t *testing.T, d sqltest.Database) {
		db, cfg := d.Open(t), childOf(d)
		cfg.Delay = 4 * time.Millisecond
		tables(t, db, cfg)
		total := size(4000, 50_000)
		fill(t, db, cfg.Outbox, total)
		b := newBroker(t, cfg)
		life := time.Duration(size(400, 1000)) * time.Millisecond
		for i := range 4 { // one of the four is killed in each life
			b.running.Go(func() { b.run(4*life + time.Duration(i)*life) })
		}
		b.finish(db, total)
	})
}

// fill commits events. Every third one has an ordering key.
func fill(t *testing.T, db *sql.DB, table string, total int) {
	t.Helper()
	for from := 0; from < total; from += 1000 {
		err := sqltx.Transact(t.Context(), db, nil, func(ctx context.Context) error {
			var events []*message.Message
			for i := from; i < min(from+1000, total); i++ {
				attrs := message.Attributes{message.AttrID: fmt.Sprintf("e%06d", i), message.AttrSource: "/fill", message.AttrType: "filled"}
				if i%3 == 0 {
					attrs[message.AttrPartitionKey] = fmt.Sprintf("k%d", i%300)
				}
				events = append(events, message.New(map[string]int{"i": i}, attrs, nil))
			}
			return sqltx.Emit(ctx, sqltx.OutboxConfig{DB: db, Table: table}, events...)
		})
		must(t, err)
	}
}
