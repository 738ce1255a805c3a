package sqltx

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/message"
)

// handled runs a handler with outputs behind the middlewares in a Router, which knows it by its name.
func handled(t *testing.T, db *sql.DB, msg *message.Message, name string, outputs []*message.Message, middlewares ...message.Middleware) error {
	t.Helper()
	r := message.NewRouter(message.PipeConfig{})
	err := errors.Join(r.Use(append([]message.Middleware{TxMiddleware(db, &TxOptions{Dialect: testDialect})}, middlewares...)...),
		r.AddHandler(name, nil, message.NewHandler(func(context.Context, *message.TypedMessage[any]) ([]*message.Message, error) { return outputs, nil })))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Process(t.Context(), msg)
	return err
}

func TestInboxStoresTheIdentityForItsSubscriberOrTheHandler(t *testing.T) {
	t.Parallel()
	payment := func(*message.Message) (message.Identity, error) {
		return message.Identity{Source: "/bank", ID: "p1"}, nil
	}
	for want, cfg := range map[string]InboxConfig{
		"[bill /shop 1]":   {},
		"[orders /shop 1]": {Subscriber: "orders"},
		"[bill /bank p1]":  {MessageID: payment},
	} {
		db := &answers{answer: once("INSERT", make([][]any, 1))}
		cfg.Dialect = testDialect
		err := handled(t, db.open(t), order("1"), "bill", nil, InboxMiddleware(cfg))
		if got := db.of("INSERT"); err != nil || len(got) != 1 || fmt.Sprint(got[0].args) != want {
			t.Errorf("stored %v, %v; want %s", got, err, want)
		}
	}
}

func TestInboxesOfOtherSubscribersOrTablesMaySurroundAnInbox(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		other InboxConfig
		works bool
	}{
		"another subscriber": {InboxConfig{Subscriber: "b", Table: "one"}, true},
		"another table":      {InboxConfig{Subscriber: "a", Table: "two"}, true},
		"the same":           {InboxConfig{Subscriber: "a", Table: "one"}, false},
	} {
		db := &answers{answer: once("INSERT", make([][]any, 1), make([][]any, 1))}
		c.other.Dialect = testDialect
		err := handled(t, db.open(t), order("1"), "bill", nil, InboxMiddleware(InboxConfig{Subscriber: "a", Table: "one", Dialect: testDialect}), InboxMiddleware(c.other))
		if (err == nil) != c.works || err != nil && !strings.Contains(err.Error(), "leave one out") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEventIDsDependOnHandlerIdentityAndPositionOnly(t *testing.T) {
	t.Parallel()
	emitted := func(handler, source, id string) (ids []string) {
		db := &answers{}
		outputs := make([]*message.Message, 3)
		for i := range outputs {
			outputs[i] = message.New("x", message.Attributes{"source": "/s", "type": "t"}, nil)
		}
		in := message.New("x", message.Attributes{"id": id, "source": source, "type": "order"}, nil)
		if err := handled(t, db.open(t), in, handler, outputs, OutboxMiddleware(OutboxConfig{Dialect: testDialect})); err != nil {
			t.Fatal(err)
		}
		for i, v := range db.of("INSERT")[0].args {
			if i%6 == 4 {
				_, rest, _ := strings.Cut(fmt.Sprint(v), `"id":"`)
				id, _, _ := strings.Cut(rest, `"`)
				ids = append(ids, id)
			}
		}
		return ids
	}
	var all []string
	for _, in := range [][3]string{{"bill", "/shop", "1"}, {"ship", "/shop", "1"}, {"bill", "/market", "1"}, {"bill", "/shop", "2"}, {"bill", "/shop1", "1"}, {"bill/", "shop", "1"}} {
		ids := emitted(in[0], in[1], in[2])
		if again := emitted(in[0], in[1], in[2]); !slices.Equal(again, ids) {
			t.Errorf("another run of %v emits %v, want %v", in, again, ids)
		}
		all = append(all, ids...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 18 || len(all[0]) != 26 {
		t.Errorf("%d different ids, want 18 of 26 characters: %v", n, all)
	}
	one, two := emitted("bill", "/shop", ""), emitted("bill", "/shop", "")
	if slices.Equal(one, two) {
		t.Errorf("two messages without an id both emit %v", one)
	}
}

func TestOutboxStoresTopicAndOrderingKeyOfEachOutput(t *testing.T) {
	t.Parallel()
	bySubject := func(output *message.Message) string { return output.Subject() }
	for name, c := range map[string]struct {
		cfg   OutboxConfig
		attrs message.Attributes
		topic string
		key   any
	}{
		"nothing":                {OutboxConfig{}, message.Attributes{}, "", nil},
		"its partition key":      {OutboxConfig{Topic: "all"}, message.Attributes{"partitionkey": "k"}, "all", "k"},
		"its destination":        {OutboxConfig{Topic: "all"}, message.Attributes{"destination": "own"}, "own", nil},
		"a key of the service":   {OutboxConfig{OrderingKey: bySubject}, message.Attributes{"subject": "s", "partitionkey": "k"}, "", "s"},
		"no key for this output": {OutboxConfig{OrderingKey: bySubject}, message.Attributes{"partitionkey": "k"}, "", nil},
	} {
		db := &answers{}
		c.cfg.Dialect = testDialect
		c.attrs["type"], c.attrs["source"], c.attrs["id"] = "t", "/s", "1"
		err := Transact(t.Context(), db.open(t), &TxOptions{Dialect: testDialect}, func(ctx context.Context) error {
			return Emit(ctx, c.cfg, message.New("x", c.attrs, nil))
		})
		if got := db.of("INSERT"); err != nil || len(got) != 1 || got[0].args[0] != c.topic || got[0].args[5] != c.key {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestOutboxInsertsAtMost100EventsAtOnce(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][]int{1: {1}, 99: {99}, 100: {100}, 101: {100, 1}, 250: {100, 100, 50}} {
		db, outputs := &answers{}, make([]*message.Message, n)
		for i := range outputs {
			outputs[i] = order(fmt.Sprint(i))
		}
		err := Transact(t.Context(), db.open(t), &TxOptions{Dialect: testDialect}, func(ctx context.Context) error {
			return Emit(ctx, OutboxConfig{Dialect: testDialect}, outputs...)
		})
		var sizes []int
		for _, h := range db.of("INSERT") {
			sizes = append(sizes, len(h.args)/6)
		}
		if err != nil || !slices.Equal(sizes, want) {
			t.Errorf("%d events: inserted %v, %v; want %v", n, sizes, err, want)
		}
	}
}

func TestStoredEventKeepsItsData(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data   any
		stored string
		base64 bool
		want   []byte
	}{
		"none":      {nil, "null", true, nil},
		"JSON null": {json.RawMessage("null"), "null", false, []byte("null")},
		"JSON":      {map[string]int{"n": 1}, `{"n":1}`, false, []byte(`{"n":1}`)},
		"bytes":     {[]byte{0, 0xff}, `"AP8="`, true, []byte{0, 0xff}},
		"no bytes":  {[]byte{}, `""`, true, []byte{}},
	} {
		r, err := encode(message.New(c.data, message.Attributes{"id": "1", "source": "/s", "type": "t"}, nil))
		if err != nil || r.data != c.stored || r.base64 != c.base64 {
			t.Errorf("%s: stored %+v, %v", name, r, err)
		}
		msg, err := r.decode()
		if err != nil || !bytes.Equal(msg.Data, c.want) || (msg.Data == nil) != (c.want == nil) {
			t.Errorf("%s: %+v was read as %v, %v", name, r, msg, err)
		}
	}
}

func TestStoredEventThatIsNoMessageIsAnError(t *testing.T) {
	t.Parallel()
	const noObject = "the attributes are not a JSON object"
	for _, c := range []struct {
		row  row
		want string
	}{
		{row{data: noData, base64: true, attributes: "{}"}, ""},
		{row{data: "1", attributes: `{"id":"1"}`}, ""},
		{row{data: noData, base64: true}, noObject},
		{row{data: noData, base64: true, attributes: "{"}, noObject},
		{row{data: noData, base64: true, attributes: "}"}, noObject},
		{row{data: noData, base64: true, attributes: "no JSON"}, noObject},
		{row{data: noData, base64: true, attributes: "no JSON}"}, "invalid character"},
		{row{data: "no JSON", attributes: `{"id":"1"}`}, "invalid character"},
	} {
		msg, err := c.row.decode()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || (msg == nil) != (err != nil) {
			t.Errorf("%+v: %v, %v; want an error with %q", c.row, msg, err, c.want)
		}
	}
}

func TestDestinationOfAStoredEventIsItsTopicUnlessItHasItsOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row  row
		want any
	}{
		{row{data: noData, base64: true, attributes: "{}"}, nil},
		{row{data: noData, base64: true, attributes: "{}", topic: "all"}, "all"},
		{row{data: noData, base64: true, attributes: `{"destination":"own"}`, topic: "all"}, "own"},
		{row{data: noData, base64: true, attributes: `{"destination":"own"}`}, "own"},
	} {
		if msg, err := c.row.decode(); err != nil || msg.Attributes[message.AttrDestination] != c.want {
			t.Errorf("%+v: %v, %v; want %v", c.row, msg, err, c.want)
		}
	}
}

func TestInitCreatesTheTableUnderTheLockOfTheDialect(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"", "LOCK"} {
		db, dialect := &answers{}, testDialect
		dialect.InitLock, dialect.InboxSchema = lock, []string{"TABLE %[1]s", "INDEX OF %[2]s"}
		want := []string{"BEGIN", "LOCK", `TABLE "seen"`, "INDEX OF seen", "COMMIT"}
		if lock == "" {
			want = slices.Delete(want, 1, 2)
		}
		err := InboxConfig{DB: db.open(t), Dialect: dialect, Table: "seen"}.Init(t.Context())
		var got []string
		for _, h := range db.heard {
			got = append(got, h.statement)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("lock %q: %q, %v; want %q", lock, got, err, want)
		}
	}
}

func TestPublisherIsWokenOnlyAfterTheCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err     error
		refused string
		nested  bool
		wakes   bool
	}{
		"committed":            {nil, "-", false, true},
		"of a part, committed": {nil, "-", true, true},
		"failed":               {errOther, "-", false, false},
		"commit refused":       {nil, "COMMIT", false, false},
	} {
		a := &answers{answer: func(statement string, _ []any) ([][]any, error) {
			if statement == c.refused {
				return nil, errOther
			}
			return nil, nil
		}}
		db := a.open(t)
		p := NewOutboxPublisher(OutboxPublisherConfig{DB: db, Dialect: testDialect})
		source := newPump(p)
		p.pumps[source] = true
		opts := &TxOptions{Dialect: testDialect}
		emit := func(ctx context.Context) error {
			return Emit(ctx, OutboxConfig{Dialect: testDialect, Publisher: p}, order("1"))
		}
		err := Transact(t.Context(), db, opts, func(ctx context.Context) error {
			var err error
			if c.nested {
				err = Transact(ctx, db, opts, emit)
			} else {
				err = emit(ctx)
			}
			if source.woken {
				t.Errorf("%s: woken before the commit", name)
			}
			return errors.Join(err, c.err)
		})
		if source.woken != c.wakes || (err == nil) != c.wakes {
			t.Errorf("%s: woken %t, %v", name, source.woken, err)
		}
	}
}
