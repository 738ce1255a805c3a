package sqltest_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

const envChild = "LUATX_SQLTEST_CHILD"

// childConfig configures a child process.
type childConfig struct {
	Consume                 bool // handles messages from its input; otherwise it only publishes
	Driver, DSN             string
	Inbox, Outbox, Business string
	Delay                   time.Duration // maximum, for a handler and for a publish
}

// work takes a random time.
func (c childConfig) work() {
	if c.Delay > 0 {
		<-time.After(rand.N(c.Delay))
	}
}

type command struct{ ID string }

type done struct{ ID string }

// runChild runs a service in a separate process until it is killed or its input ends. The parent is its broker: ids are read, and
// "ack", "nack" and "event" lines are written.
func runChild() int {
	if err := child(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	return 0
}

func child(in io.Reader, out io.Writer) error {
	var cfg childConfig
	if err := json.Unmarshal([]byte(os.Getenv(envChild)), &cfg); err != nil {
		return err
	}
	db, err := sql.Open(cfg.Driver, cfg.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(12)
	db.SetMaxIdleConns(12)
	say := lineWriter(out)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	publisher := sqltx.NewOutboxPublisher(sqltx.OutboxPublisherConfig{
		DB: db, Table: cfg.Outbox, Lease: 500 * time.Millisecond, PollInterval: 20 * time.Millisecond, BackoffBase: time.Millisecond, BackoffCap: 50 * time.Millisecond,
		Attempts: 1000, Logger: slog.New(slog.DiscardHandler),
	})
	events, err := publisher.Source(ctx)
	if err != nil {
		return err
	}
	for range 4 {
		go func() {
			for msg := range events {
				if rand.IntN(20) == 0 {
					msg.Nack(errors.New("rejected by the broker"))
					continue
				}
				cfg.work()
				say("event", msg.ID())
				msg.Ack()
			}
		}()
	}
	if !cfg.Consume {
		_, err := io.Copy(io.Discard, in)
		return err
	}
	return consume(in, db, cfg, say)
}

// lineWriter returns a function that writes whole lines.
func lineWriter(out io.Writer) func(what, id string) {
	var mu sync.Mutex
	return func(what, id string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(out, what+" "+id+"\n") // fails if the parent has exited
	}
}

func consume(in io.Reader, db *sql.DB, cfg childConfig, say func(what, id string)) error {
	router := message.NewRouter(message.PipeConfig{Concurrency: 8, Logger: slog.New(slog.DiscardHandler)})
	store := func(ctx context.Context, id string) error {
		dialect, err := sqltx.DialectOf(db)
		if err != nil {
			return err
		}
		_, err = sqltx.ExecutorFromContext(ctx, db).ExecContext(ctx, dialect.Bind("INSERT INTO "+cfg.Business+" (id) VALUES (?)"), id)
		return err
	}
	handler := message.NewCommandHandler(func(ctx context.Context, cmd command) ([]done, error) {
		if err := store(ctx, cmd.ID); err != nil {
			return nil, err
		}
		cfg.work()
		if rand.IntN(10) == 0 {
			return nil, errors.New("a bad day")
		}
		return []done{{cmd.ID}}, nil
	}, message.CommandHandlerConfig{CommandType: "do", Source: "/child", Attributes: func(command, event any) message.Attributes {
		d, _ := event.(done)
		return message.Attributes{message.AttrID: d.ID}
	}})
	err := errors.Join(
		router.Use(
			sqltx.TxMiddleware(db, &sqltx.TxOptions{Retries: 3}),
			sqltx.InboxMiddleware(sqltx.InboxConfig{DB: db, Table: cfg.Inbox}),
			sqltx.OutboxMiddleware(sqltx.OutboxConfig{DB: db, Table: cfg.Outbox})),
		router.AddHandler("do", nil, handler))
	if err != nil {
		return err
	}
	input := make(chan *message.Message)
	outputs, err := router.Pipe(context.Background(), input)
	if err != nil {
		return err
	}
	go func() {
		for range outputs { // the outbox stores the outputs
		}
	}()
	for scanner := bufio.NewScanner(in); scanner.Scan(); {
		id := scanner.Text()
		input <- message.New(command{id}, message.Attributes{message.AttrID: id, message.AttrSource: "/parent", message.AttrType: "do"},
			message.NewAcking(func() { say("ack", id) }, func(error) { say("nack", id) }))
	}
	return nil
}

// childOf returns the config of a child for a database.
func childOf(db sqltest.Database) childConfig {
	return childConfig{Driver: db.Driver, DSN: db.DSN, Inbox: sqltest.Table("inbox"), Outbox: sqltest.Table("outbox"), Business: strings.ToLower(sqltest.Table("business"))}
}
