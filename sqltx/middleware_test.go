package sqltx

import (
	"context"
	"strings"
	"testing"

	"github.com/luatx/luatx/message"
)

func TestMiddlewareWithAnInvalidConfigRunsNoHandler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		middleware message.Middleware
		want       string
	}{
		"inbox":  {InboxMiddleware(InboxConfig{Dialect: SQLite(), Table: `a"b`}), "Table"},
		"outbox": {OutboxMiddleware(OutboxConfig{Dialect: SQLite(), Table: `a"b`}), "Table"},
	} {
		_, err := c.middleware.Wrap(func(context.Context, *message.Message) ([]*message.Message, error) {
			t.Errorf("%s: the handler ran", name)
			return nil, nil
		})(t.Context(), message.New(nil, message.Attributes{"id": "1", "source": "/s", "type": "t"}, nil))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}
