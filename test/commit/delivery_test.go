package commit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

func TestRunsOfOneDeliveryDeriveTheSameEventIDsInAnyContext(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	id, fails := "", errors.New("once more")
	process := luatx.Middleware(rig.NewTransactor(t, client)).Wrap(func(ctx context.Context, _ *message.Message) ([]*message.Message, error) {
		tx, _ := luatx.TxFromContext(ctx)
		id = tx.EventID()
		return nil, fails
	})
	derived := func(ctx context.Context, msg *message.Message) string {
		t.Helper()
		assert.Is(t, assert.ErrOf(process(ctx, msg)), fails, "the run")
		return id
	}
	plain, msg, other := redistest.Soon(t), rig.Delivered("1"), rig.Delivered("2")
	first := derived(plain, msg)
	for name, ctx := range map[string]context.Context{"none": plain, "its own": msg.Context(plain), "another message's": other.Context(plain)} {
		assert.Equal(t, derived(ctx, msg), first, "the id in a run with the context %q", name)
	}
	if derived(plain, other) == first {
		t.Error("two messages derive the same id")
	}
	twin := message.Copy(msg, any(nil))
	if own := derived(plain, twin); own == first || derived(msg.Context(plain), twin) != own {
		t.Error("a copy derives the id of its original, or a new one in each run")
	}
}

func TestMessageHasTheTagOfItsAggregateOrOfItsStream(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	unknown := errors.New("no such tenant")
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Aggregate = func(msg *message.Message) (string, error) {
			if msg.Subject() == "unknown" {
				return "", unknown
			}
			return msg.Subject(), nil
		}
	})
	ran, tag := false, ""
	r := rig.NewRouter(t, message.PipeConfig{}, luatx.Middleware(tr), func(ctx context.Context) ([]*message.Message, error) {
		tx, _ := luatx.TxFromContext(ctx)
		ran, tag = true, tx.Tag()
		return nil, nil
	})
	process := func(subject, stream string) error {
		attrs := rig.Order("7")
		attrs["subject"], ran, tag = subject, false, ""
		msg := message.New(nil, attrs, message.NewAckingFrom(message.AckingConfig{Source: message.Source{Stream: stream, Group: "g", Consumer: "c", Entry: "1-1"}}))
		return assert.ErrOf(r.Process(redistest.Soon(t), msg))
	}
	for _, c := range []struct{ subject, stream, tag string }{
		{"a", "orders", "a"}, {"a", "{b}:orders", "a"}, {"", "{b}:orders", "b"},
	} {
		if _ = process(c.subject, c.stream); tag != c.tag {
			t.Errorf("subject %q from %s: tag %q, want %q", c.subject, c.stream, tag, c.tag)
		}
	}
	for _, c := range []struct{ subject, stream, says string }{
		{"unknown", "{b}:orders", "luatx: Config.Aggregate: no such tenant"},
		{strings.Repeat("x", 257), "{b}:orders", "257 bytes, more than 256"},
		{"", "orders", `message "7" has no aggregate`},
		{"", "", `message "7" has no aggregate`},
	} {
		err := process(c.subject, c.stream)
		assert.ErrorContains(t, err, c.says, "subject %.20q from %q", c.subject, c.stream)
		if ran || !message.IsPermanent(err) || errors.Is(err, unknown) != (c.subject == "unknown") {
			t.Errorf("subject %.20q from %q: %v, the handler ran: %t", c.subject, c.stream, err, ran)
		}
	}
}

func TestLookupOfAFailedHandlersIDIsLoggedIfItFails(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	var log rig.Lines
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Logger = log.Logger() })
	refuser, fails := rig.Refuse(client), errors.New("no such customer")
	for refused, want := range []int{0, 1} {
		_, err := tr.Transact(redistest.Soon(t), "a", func(*luatx.Tx) error {
			refuser.Arm(refused)
			return fails
		}, luatx.WithID("1"))
		assert.Is(t, err, fails, "the transaction")
		assert.Equal(t, log.Count("its id could not be looked up"), want, "lines after %q was refused", refuser.Disarm())
	}
}
