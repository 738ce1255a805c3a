package trigger

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
)

// replySlack is what a reply may take beyond the time that the server was asked to wait.
const replySlack = 3 * time.Second

// link is what a driver of this package is made with.
type link struct {
	client redis.UniversalClient
	end    func() error // closes the client, where it was made here
	cfg    Config
	log    *slog.Logger
}

// server returns the client of the driver.
func (l *link) server() redis.UniversalClient { return l.client }

// reload makes a cluster's client look again who holds which slot, after an error that came from no server or the wrong one.
func (l *link) reload(ctx context.Context, err error) {
	if c, ok := l.client.(interface{ ReloadState(ctx context.Context) }); ok && (!group.IsReply(err) || group.HasCode(err, "MOVED")) {
		c.ReloadState(ctx)
	}
}

// within bounds a read that the server was asked to wait for.
func within(ctx context.Context, block time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, block+replySlack)
}

// start returns the id behind which reading begins. It turns "$" into the id that it means now, so that nothing is lost when it
// is needed again.
func (l *link) start(ctx context.Context) (string, error) {
	last, err := group.LastID(ctx, l.client, l.cfg.Stream)
	if err == nil && l.cfg.LastID != "$" {
		return l.cfg.LastID, nil
	}
	return last, err
}

// textFields makes texts of the values of an entry.
func textFields(values map[string]any) map[string]string {
	fields := make(map[string]string, len(values))
	for name, value := range values {
		fields[name] = fmt.Sprint(value)
	}
	return fields
}
