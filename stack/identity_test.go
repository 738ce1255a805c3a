package stack_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

// payments counts payments. Each may arrive as several messages, with different ids or without one.
type payments struct {
	t      *testing.T
	client redis.UniversalClient
	tr     *luatx.Transactor
	cfg    stack.Config
	counts string // a hash: how often each payment was applied
	runs   int
}

func newPayments(t *testing.T, client redis.UniversalClient) *payments {
	t.Helper()
	tr := rig.NewTransactor(t, client)
	name := redistest.Tag(t)
	return &payments{t: t, client: client, tr: tr, counts: rig.Key(t, tr, "a", "payments"), cfg: stack.Config{
		MessageID: func(msg *message.Message) (message.Identity, error) {
			payment, ok := msg.Attributes["payment"].(string)
			if !ok {
				return message.Identity{}, errors.New("the message has no payment")
			}
			return message.Identity{ID: payment}, nil
		},
		MarkKey:        func(id message.Identity) string { return name + ":mark:" + id.ID },
		OutboxStream:   rig.Key(t, tr, "a", "out"),
		RelayElsewhere: true,
		Logger:         slog.New(slog.DiscardHandler),
	}}
}

// router processes messages in one of the modes.
func (p *payments) router(mode string, change ...func(*stack.Config)) *message.Router {
	p.t.Helper()
	cfg := p.cfg
	for _, c := range change {
		c(&cfg)
	}
	mw, err := stack.Scripted(p.tr, cfg)
	if mode == "pipelined" {
		mw, err = stack.Pipelined(p.client, cfg)
	}
	redistest.Must(p.t, err)
	r := message.NewRouter(message.PipeConfig{})
	redistest.Must(p.t, r.Use(mw))
	redistest.Must(p.t, r.AddHandler("pay", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
		p.runs++
		payment, _ := msg.Attributes["payment"].(string)
		paid := message.New(payment, message.Attributes{"type": "paid", "source": "/bank"}, nil)
		return []*message.Message{paid}, luatx.Queued(luatx.CmdableFromContext(ctx, p.client).HIncrBy(ctx, p.counts, payment, 1))
	})))
	return r
}

// deliver processes a message about a payment. With an empty id, the message has none.
func (p *payments) deliver(r *message.Router, id, payment string) {
	p.t.Helper()
	attrs := message.Attributes{"source": "/shop", "type": "pay", "subject": "a", "payment": payment}
	if id != "" {
		attrs["id"] = id
	}
	msg := message.New(nil, attrs, message.NewAcking(nil, nil))
	_, err := r.Process(redistest.Soon(p.t), msg)
	redistest.Must(p.t, err)
	if msg.Err() != nil {
		p.t.Errorf("message %q of payment %s: nacked with %v", id, payment, msg.Err())
	}
}

func (p *payments) want(payment, times string) {
	p.t.Helper()
	if got := p.client.HGet(p.t.Context(), p.counts, payment).Val(); got != times {
		p.t.Errorf("payment %s was applied %q times, want %s", payment, got, times)
	}
}

func TestMessageIDAppliesAPaymentOnceInEitherMode(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, mode := range []string{"pipelined", "scripted"} {
			p := newPayments(t, client)
			r := p.router(mode)
			for _, id := range []string{"1", "2", "", "3", ""} {
				p.deliver(r, id, "p1")
			}
			p.deliver(r, "1", "p2") // the same id, but another payment
			p.want("p1", "1")
			p.want("p2", "1")
			msg := message.New(nil, message.Attributes{"id": "1", "source": "/shop", "type": "pay", "subject": "a"}, message.NewAcking(nil, nil))
			if _, err := r.Process(redistest.Soon(t), msg); !message.IsPermanent(err) || !strings.Contains(err.Error(), "the message has no payment") {
				t.Errorf("%s: a message without a payment: %v", mode, err)
			}
		}
	})
}

func TestMessageIDWorksDuringTheChangeOfModes(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p := newPayments(t, client)
		overlapping := func(c *stack.Config) { c.Overlap = client }
		before, between, after := p.router("pipelined"), p.router("scripted", overlapping), p.router("scripted")
		p.deliver(before, "1", "p1")
		for i, r := range []*message.Router{between, before, between} {
			p.deliver(r, string(rune('a'+i)), "p1")
		}
		p.deliver(between, "", "p2")
		for _, r := range []*message.Router{before, after, between} {
			p.deliver(r, "9", "p2")
		}
		p.want("p1", "1")
		p.want("p2", "1")
	})
}

func TestPrecheckHonorsMessageID(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p := newPayments(t, client)
		r := p.router("scripted", func(c *stack.Config) { c.Precheck = true })
		for _, id := range []string{"1", "2", ""} {
			p.deliver(r, id, "p1")
		}
		p.want("p1", "1")
		if p.runs != 1 {
			t.Errorf("the handler ran %d times, want 1", p.runs)
		}
	})
}

func TestStackReportsMarkKeyThatContradictsMessageID(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: "marks"})
	redistest.Must(t, err)
	n := 0
	idAlone := func(id message.Identity) string { return "inbox:" + id.ID }
	byID := func(msg *message.Message) (message.Identity, error) { return message.Identity{ID: msg.ID()}, nil }
	byData := func(msg *message.Message) (message.Identity, error) {
		return message.Identity{ID: msg.Data.(string)}, nil // panics for a message without data
	}
	for name, c := range map[string]struct {
		cfg  stack.Config
		says string // empty: no error
	}{
		"defaults":                     {stack.Config{}, ""},
		"source and id":                {stack.Config{MarkKey: func(id message.Identity) string { return id.Source + " " + id.ID }}, ""},
		"id alone in both":             {stack.Config{MarkKey: idAlone, MessageID: byID}, ""},
		"id alone, from data":          {stack.Config{MarkKey: idAlone, MessageID: byData}, ""},
		"mark without the source":      {stack.Config{MarkKey: idAlone}, "messages of two sources"},
		"mark without the source, own": {stack.Config{MarkKey: idAlone, MessageID: message.IdentityOf}, "messages of two sources"},
		"mark without the id":          {stack.Config{MarkKey: func(id message.Identity) string { return id.Source }}, "use Identity.ID"},
		"another key every time": {stack.Config{MarkKey: func(id message.Identity) string {
			n++
			return id.ID + strings.Repeat("x", n)
		}}, "return the same key"},
	} {
		cfg := c.cfg
		cfg.OutboxStream = "out"
		_, pipelined := stack.Pipelined(client, cfg)
		_, alone := stack.Scripted(tr, cfg)
		cfg.Overlap = client
		_, overlapping := stack.Scripted(tr, cfg)
		for mode, err := range map[string]error{"pipelined": pipelined, "overlap": overlapping} {
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "stack: check Config.MarkKey: ")) {
				t.Errorf("%s, %s: error %v, want %q", name, mode, err, c.says)
			}
		}
		if alone != nil {
			t.Errorf("%s, without an overlap: %v", name, alone)
		}
	}
}
