package commit_test

import (
	"context"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/pipeline"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// TestScopes holds that a message counts once for each handler, and once for each service.
func TestScopes(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx := redistest.Soon(t)
	n := redistest.Tag(t)
	apply := func(namespace, handler string) {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Namespace, c.Keyspace = namespace, luatx.OwnTags() })
		r := message.NewRouter(message.PipeConfig{})
		_ = r.Use(rig.Scripted(t, tr))
		_ = r.AddHandler(handler, nil, message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
			return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, "{a}:"+n))
		}))
		if _, err := r.Process(ctx, message.New(nil, rig.Order("1"), message.NewAcking(nil, nil))); err != nil {
			t.Error(err)
		}
	}
	for i, c := range []struct {
		namespace, handler string
		total              string
	}{
		{"one", "bill", "1"}, {"one", "bill", "1"}, {"one", "ship", "2"}, {"two", "bill", "3"}, {"two", "bill", "3"},
	} {
		apply(c.namespace, c.handler)
		if got := client.Get(ctx, "{a}:"+n).Val(); got != c.total {
			t.Errorf("step %d (%s/%s): applied %s times, want %s", i, c.namespace, c.handler, got, c.total)
		}
	}
	// The parts of an id are told apart by their lengths.
	tr := rig.NewTransactor(t, client)
	for _, id := range []luatx.MessageID{
		{Scope: "s", Source: "a", ID: "bc"}, {Scope: "s", Source: "ab", ID: "c"}, {Scope: "sa", Source: "b", ID: "c"},
	} {
		result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return tx.Claim(id) })
		if err != nil || result.Outcome != luatx.Committed {
			t.Errorf("%v: %v, %v", id, result, err)
		}
	}
}

// TestTxTravelsInTheContextOnly holds that a handler downstream, which is given a copy of a message, does not
// find the finished transaction of the one before.
func TestTxTravelsInTheContextOnly(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	first := rig.NewRouter(t, message.PipeConfig{AckStrategy: message.AckForward}, luatx.Middleware(tr), func(ctx context.Context) ([]*message.Message, error) {
		msg, _ := message.MessageFromContext(ctx)
		return []*message.Message{message.Copy(msg, any("copy")), message.New("new", rig.Order("2"), nil)}, nil
	})
	outputs, err := first.Process(ctx, message.New(nil, rig.Order("1"), message.NewAcking(nil, nil)))
	if err != nil || len(outputs) != 2 {
		t.Fatal(outputs, err)
	}
	for _, output := range outputs {
		if _, ok := luatx.TxFromContext(output.Context(ctx)); ok {
			t.Error("the transaction travels with the message")
		}
		second := rig.NewRouter(t, message.PipeConfig{}, luatx.Middleware(tr), func(ctx context.Context) ([]*message.Message, error) {
			return nil, luatx.CmdableFromContext(ctx, client).Set(ctx, rig.Key(t, tr, "a", "k"), 1, 0).Err()
		})
		if _, err := second.Process(ctx, output); err != nil {
			t.Errorf("downstream: %v", err)
		}
	}
}

// TestStacksRefuseWrongOrder holds that a stack that would not do what it promises fails at the first message, in a router, which
// checks the order before it runs anything, and in a chain made by hand.
func TestStacksRefuseWrongOrder(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	tx, multi := luatx.Middleware(tr), pipeline.Middleware(client)
	dedup, setnx := inbox.Middleware(inbox.Config{}), pipeline.SetNX(client, pipeline.SetNXConfig{})
	events, added := outbox.Middleware(outbox.Config{}), pipeline.Outbox(pipeline.OutboxConfig{Stream: "{a}:out"})
	for name, c := range map[string]struct {
		stack []message.Middleware
		says  string // empty: it works
	}{
		"scripted":                    {[]message.Middleware{tx, dedup, events}, ""},
		"pipelined":                   {[]message.Middleware{setnx, multi, added}, ""},
		"SetNX around scripted":       {[]message.Middleware{setnx, tx, events}, "replace it by inbox.Middleware"},
		"inbox outside":               {[]message.Middleware{dedup, tx, events}, "put luatx.Middleware before inbox.Middleware"},
		"outbox outside":              {[]message.Middleware{events, tx, dedup}, "put luatx.Middleware before outbox.Middleware"},
		"precheck outside":            {[]message.Middleware{inbox.Precheck(), tx}, "before inbox.Precheck"},
		"twice":                       {[]message.Middleware{tx, tx}, "leave one out"},
		"two inboxes":                 {[]message.Middleware{tx, dedup, dedup}, "one inbox.Middleware"},
		"pipeline inside scripted":    {[]message.Middleware{tx, multi}, "leave one out"},
		"scripted inside pipeline":    {[]message.Middleware{multi, tx}, "leave one out"},
		"SetNX inside pipeline":       {[]message.Middleware{multi, setnx}, "put pipeline.SetNX before pipeline.Middleware"},
		"pipeline outbox in scripted": {[]message.Middleware{tx, added}, "replace it by outbox.Middleware"},
		"pipeline outbox alone":       {[]message.Middleware{added}, "pipeline: no pipeline in context: put pipeline.Middleware before pipeline.Outbox"},
	} {
		ran := false
		handler := message.NewHandler(func(context.Context, *message.TypedMessage[any]) ([]*message.Message, error) {
			ran = true
			return nil, nil
		})
		r := message.NewRouter(message.PipeConfig{})
		if err := r.Use(c.stack...); err != nil {
			t.Fatal(err)
		}
		_ = r.AddHandler("h", nil, handler)
		byHand := message.Chain(c.stack...).Wrap(handler.Handle)
		for way, process := range map[string]message.ProcessFunc{"router": r.Process, "by hand": byHand} {
			ran = false
			_, err := process(ctx, message.New(nil, rig.Order(name+way), message.NewAcking(nil, nil)))
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s, %s: error %v, want %q", name, way, err, c.says)
			}
			if ran != (c.says == "") {
				t.Errorf("%s, %s: the handler ran: %t", name, way, ran)
			}
		}
	}
}
