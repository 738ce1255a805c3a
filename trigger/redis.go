package trigger

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
)

// replySlack is the time that a reply may take in addition to the requested wait.
const replySlack = 3 * time.Second

// link has the parts that the drivers of this package share.
type link struct {
	client redis.UniversalClient
	end    func() error // closes the client if the trigger created it
	cfg    Config
	log    *slog.Logger
}

// server returns the client of the driver.
func (l *link) server() redis.UniversalClient { return l.client }

// reload makes a cluster's client reload the slots after an error from no server or the wrong one.
func (l *link) reload(ctx context.Context, err error) {
	if c, ok := l.client.(interface{ ReloadState(ctx context.Context) }); ok && (!group.IsReply(err) || group.HasCode(err, "MOVED")) {
		c.ReloadState(ctx)
	}
}

// within bounds the time of a blocking read.
func within(ctx context.Context, block time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, block+replySlack)
}

// start returns the id after which reading begins. It resolves "$" to the current last id, so that no entry is lost if the
// position is needed again.
func (l *link) start(ctx context.Context) (string, error) {
	last, err := group.LastID(ctx, l.client, l.cfg.Stream)
	if err == nil && l.cfg.LastID != "$" {
		return l.cfg.LastID, nil
	}
	return last, err
}

// textFields converts the values of an entry to strings.
func textFields(values map[string]any) map[string]string {
	fields := make(map[string]string, len(values))
	for name, value := range values {
		fields[name] = fmt.Sprint(value)
	}
	return fields
}
