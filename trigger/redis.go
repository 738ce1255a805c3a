package trigger

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// replySlack is what a reply may take beyond the time that the server was asked to wait.
const replySlack = 3 * time.Second

//go:embed redeliver.lua
var redeliverSource string

//go:embed hold.lua
var holdSource string

//go:embed deadletter.lua
var deadLetterSource string

//go:embed leave.lua
var leaveSource string

// Each script may be sent again after a lost reply; redeliver then counts a delivery more, deadletter finds nothing left.
var (
	redeliverScript  = redis.NewScript(redeliverSource)
	holdScript       = redis.NewScript(holdSource)
	deadLetterScript = redis.NewScript(deadLetterSource)
	leaveScript      = redis.NewScript(leaveSource)
)

// A command in these is sent once. Sent again after a lost reply, XREADGROUP would return another entry, and XCLAIM none:
// what the first reply held would lie with this consumer, and nobody would know.
type (
	readOnce  struct{ *redis.XStreamSliceCmd }
	claimOnce struct{ *redis.StringSliceCmd }
)

// NoRetry tells the client.
func (readOnce) NoRetry() bool { return true }

// NoRetry tells the client.
func (claimOnce) NoRetry() bool { return true }

// link is what a driver of this package is made with.
type link struct {
	client redis.UniversalClient
	end    func() error // closes the client, where it was made here
	cfg    Config
	log    *slog.Logger
}

// reload makes a cluster's client look again who holds which slot, after an error that came from no server or the wrong one.
func (l *link) reload(ctx context.Context, err error) {
	if c, ok := l.client.(interface{ ReloadState(ctx context.Context) }); ok && (!isReply(err) || hasPrefix(err, "MOVED")) {
		c.ReloadState(ctx)
	}
}

// readOne takes the entry out of a reply to XREAD or XREADGROUP; false where it has none.
func readOne(cmd *redis.XStreamSliceCmd) (redis.XMessage, bool, error) {
	streams, err := cmd.Result()
	if errors.Is(err, redis.Nil) || err == nil && (len(streams) == 0 || len(streams[0].Messages) == 0) {
		return redis.XMessage{}, false, nil
	}
	if err != nil {
		return redis.XMessage{}, false, err
	}
	return streams[0].Messages[0], true, nil
}

// within bounds a read that the server was asked to wait for.
func within(ctx context.Context, block time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, block+replySlack)
}

// startID turns "$" into the id that it means now, so that nothing is lost when it is needed again.
func (l *link) startID(ctx context.Context) (string, error) {
	last, err := l.client.XRevRangeN(ctx, l.cfg.Stream, "+", "-", 1).Result()
	switch {
	case err != nil:
		return "", err
	case l.cfg.LastID != "$":
		return l.cfg.LastID, nil
	case len(last) == 0:
		return "0", nil
	default:
		return last[0].ID, nil
	}
}

// textFields makes texts of the values of an entry.
func textFields(values map[string]any) map[string]string {
	fields := make(map[string]string, len(values))
	for name, value := range values {
		fields[name] = fmt.Sprint(value)
	}
	return fields
}
