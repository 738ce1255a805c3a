package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/luatx/luatx/message"
)

func order(id string) *message.Message {
	return message.New("x", message.Attributes{"id": id, "source": "/shop", "type": "order"}, nil)
}

// through runs a handler with outputs inside a transaction of the database and the middlewares.
func through(ctx context.Context, db *sql.DB, outputs []*message.Message, middlewares ...message.Middleware) error {
	process := func(context.Context, *message.Message) ([]*message.Message, error) { return outputs, nil }
	for _, m := range middlewares {
		process = m.Wrap(process)
	}
	_, err := TxMiddleware(db, &TxOptions{Dialect: SQLite()}).Wrap(process)(ctx, order("1"))
	return err
}

func TestInvalidConfigIsTheErrorOfEachCall(t *testing.T) {
	t.Parallel()
	db := new(answers).open(t)
	process := func(m message.Middleware) error {
		_, err := m.Wrap(func(context.Context, *message.Message) ([]*message.Message, error) {
			t.Error("the handler ran")
			return nil, nil
		})(t.Context(), order("1"))
		return err
	}
	transact := func(db *sql.DB, opts *TxOptions) error {
		return errors.Join(process(TxMiddleware(db, opts)), Transact(t.Context(), db, opts, func(context.Context) error {
			t.Error("the function ran")
			return nil
		}))
	}
	ofInbox := func(cfg InboxConfig) error { return errors.Join(process(InboxMiddleware(cfg)), cfg.Init(t.Context())) }
	ofOutbox := func(cfg OutboxConfig) error {
		return errors.Join(process(OutboxMiddleware(cfg)), cfg.Init(t.Context()), Emit(t.Context(), cfg, order("1")))
	}
	ofPublisher := func(cfg OutboxPublisherConfig) error {
		p := NewOutboxPublisher(cfg)
		_, source := p.Source(t.Context())
		_, subscribe := p.Subscribe(t.Context())
		_, rearm := p.Rearm(t.Context(), 1)
		_, discard := p.Discard(t.Context(), 1)
		all := []error{source, subscribe, rearm, discard}
		for _, err := range p.Parked(t.Context()) {
			all = append(all, err)
		}
		return errors.Join(all...)
	}
	for name, c := range map[string]struct {
		err   error
		want  string
		times int
	}{
		"transaction without a database":    {transact(nil, nil), "DB is nil", 2},
		"transaction of an unknown driver":  {transact(db, nil), "TxOptions: the dialect of driver", 2},
		"negative retries":                  {transact(db, &TxOptions{Dialect: SQLite(), Retries: -1}), "Retries is -1", 2},
		"inbox without a database":          {ofInbox(InboxConfig{}), "InboxConfig: DB is nil", 2},
		"inbox's table":                     {ofInbox(InboxConfig{Dialect: SQLite(), Table: `a"b`}), "InboxConfig.Table", 2},
		"outbox without a database":         {ofOutbox(OutboxConfig{}), "OutboxConfig: DB is nil", 3},
		"outbox's table":                    {ofOutbox(OutboxConfig{Dialect: SQLite(), Table: `a"b`}), "OutboxConfig.Table", 3},
		"notifications of SQLite":           {ofOutbox(OutboxConfig{Dialect: SQLite(), Notify: true}), "no notifications", 3},
		"publisher without a database":      {ofPublisher(OutboxPublisherConfig{}), "DB", 5},
		"publisher of an unknown driver":    {ofPublisher(OutboxPublisherConfig{DB: db}), "OutboxPublisherConfig: the dialect of driver", 5},
		"publisher's table":                 {ofPublisher(OutboxPublisherConfig{DB: db, Dialect: SQLite(), Table: `a"b`}), "OutboxPublisherConfig.Table", 5},
		"tables of an inbox without its DB": {InboxConfig{Dialect: SQLite()}.Init(t.Context()), "DB is nil", 1},
		"emitting outside of a transaction": {Emit(t.Context(), OutboxConfig{Dialect: SQLite()}, order("1")), "call it inside Transact", 1},
	} {
		if c.err == nil || strings.Count(c.err.Error(), c.want) != c.times {
			t.Errorf("%s: %v; want %d errors with %q", name, c.err, c.times, c.want)
		}
	}
}

func TestOutboxWritesNothingForNoOutputsAndForInvalidOnes(t *testing.T) {
	t.Parallel()
	cfg := OutboxConfig{Dialect: SQLite()}
	long := order("1")
	long.Attributes[message.AttrDestination] = strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		outputs []*message.Message
		want    string
	}{
		"none":                             {nil, ""},
		"one that has no JSON":             {[]*message.Message{message.New(make(chan int), message.Attributes{"type": "t"}, nil)}, "unsupported type"},
		"an attribute of the wrong type":   {[]*message.Message{message.New("x", message.Attributes{"type": 5}, nil)}, `"type"`},
		"a destination of too many bytes":  {[]*message.Message{long}, "topic has 256 bytes"},
		"the second one is no valid event": {[]*message.Message{order("1"), long}, "topic has 256 bytes"},
	} {
		var a answers
		db := a.open(t)
		handled := through(t.Context(), db, c.outputs, OutboxMiddleware(cfg))
		emitted := Transact(t.Context(), db, &TxOptions{Dialect: SQLite()}, func(ctx context.Context) error { return Emit(ctx, cfg, c.outputs...) })
		for _, err := range []error{handled, emitted} {
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error is %v", name, err)
			}
		}
		if c.want != "" && !message.IsPermanent(handled) {
			t.Errorf("%s: %v is not permanent", name, handled)
		}
		if inserted := a.of("INSERT"); len(inserted) > 0 {
			t.Errorf("%s: %v", name, inserted)
		}
	}
}

func TestOutboxNotifiesListenersAndItsPublisher(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	a := answers{answer: func(statement string, _ []any) ([][]any, error) {
		if strings.Contains(statement, "pg_notify") {
			return nil, refused
		}
		return nil, nil
	}}
	db := a.open(t)
	cfg := OutboxConfig{Dialect: PostgreSQL(), Table: "shop.events", Notify: true}
	emit := func() error {
		return Transact(t.Context(), db, &TxOptions{Dialect: PostgreSQL()}, func(ctx context.Context) error { return Emit(ctx, cfg, order("1")) })
	}
	if err := emit(); !errors.Is(err, refused) || !strings.Contains(err.Error(), "outbox: notify") {
		t.Errorf("error is %v", err)
	}
	if sent := a.of("pg_notify"); len(sent) != 1 || len(sent[0].args) != 1 || sent[0].args[0] != "luatx_events" {
		t.Errorf("notified %v", sent)
	}

	cfg = OutboxConfig{Dialect: PostgreSQL(), Publisher: NewOutboxPublisher(OutboxPublisherConfig{DB: db, Dialect: PostgreSQL()})}
	waiting := newPump(cfg.Publisher)
	cfg.Publisher.pumps[waiting] = true
	if err := emit(); err != nil || !waiting.woken {
		t.Errorf("the publisher was woken: %t, %v", waiting.woken, err)
	}
}

func TestInboxNeedsASubscriberAndAnIdentity(t *testing.T) {
	t.Parallel()
	db := new(answers).open(t)
	for want, cfg := range map[string]InboxConfig{
		"InboxConfig.Subscriber is empty":   {Dialect: SQLite()},
		"identity without an ID":            {Dialect: SQLite(), Subscriber: "s", MessageID: func(*message.Message) (message.Identity, error) { return message.Identity{}, nil }},
		"Subscriber has 256 bytes":          {Dialect: SQLite(), Subscriber: strings.Repeat("x", 256)},
		`Subscriber "\x00" is not storable`: {Dialect: SQLite(), Subscriber: "\x00"},
		"no identity":                       {Dialect: SQLite(), Subscriber: "s", MessageID: func(*message.Message) (message.Identity, error) { return message.Identity{}, errors.New("no identity") }},
	} {
		if err := through(t.Context(), db, nil, InboxMiddleware(cfg)); err == nil || !message.IsPermanent(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want a permanent one with %q", err, want)
		}
	}
}

func TestExecutorIsTheTransactionOfTheContextOrTheFallback(t *testing.T) {
	t.Parallel()
	db := new(answers).open(t)
	if ExecutorFromContext(t.Context(), db) != Executor(db) {
		t.Error("outside of a transaction, the executor is not the database")
	}
	if _, ok := TxFromContext(ContextWithTransaction(t.Context(), nil)); ok {
		t.Error("a transaction of another kind is a *sql.Tx")
	}
	err := Transact(t.Context(), db, &TxOptions{Dialect: SQLite()}, func(ctx context.Context) error {
		tx, ok := TxFromContext(ctx)
		if !ok || ExecutorFromContext(ctx, db) != Executor(tx) {
			t.Error("inside of a transaction, the executor is another one")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestConnectionThatCannotBeRestoredLeavesThePool checks that no other transaction gets a connection in the mode of this one.
func TestConnectionThatCannotBeRestoredLeavesThePool(t *testing.T) {
	t.Parallel()
	nothing := func(func()) error { return nil }
	for _, c := range []struct {
		act          func(cancel func()) error
		fails, wrong string
		left         int // connections in the pool
	}{
		{act: nothing, left: 1},
		{act: nothing, fails: "AFTER", left: 0},
		{act: nothing, fails: "BEFORE", wrong: "BEFORE failed", left: 1},
		{act: nothing, fails: "BEGIN", wrong: "BEGIN failed", left: 1},
		{act: func(func()) error { return errOther }, fails: "ROLLBACK", wrong: "something else\nsqltx: roll back transaction: ROLLBACK failed", left: 0},
		{act: func(cancel func()) error { cancel(); return errOther }, wrong: "something else", left: 1},
	} {
		a := &answers{}
		a.answer = func(statement string, _ []any) ([][]any, error) {
			if statement == c.fails {
				return nil, errors.New(statement + " failed")
			}
			return nil, nil
		}
		db, dialect := a.open(t), testDialect
		dialect.Before, dialect.After = []string{"BEFORE"}, []string{"AFTER"}
		ctx, cancel := context.WithCancel(t.Context())
		err := Transact(ctx, db, &TxOptions{Dialect: dialect}, func(context.Context) error { return c.act(cancel) })
		cancel()
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%q fails: error is %v, want one about %q", c.fails, err, c.wrong)
		}
		restored := 1
		if c.fails == "ROLLBACK" {
			restored = 0 // it could commit the writes
		}
		if left := db.Stats().OpenConnections; left != c.left || len(a.of("AFTER")) != restored {
			t.Errorf("%q fails: %d connections, want %d; heard %v", c.fails, left, c.left, a.heard)
		}
	}
}

func TestTransactionDoesNotBeginAfterTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, before := range [][]string{nil, {"BEFORE"}} {
		dialect := testDialect
		dialect.Before = before
		err := Transact(ctx, new(answers).open(t), &TxOptions{Dialect: dialect}, func(context.Context) error {
			t.Error("the function ran")
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("with %q before it: %v", before, err)
		}
	}
}
