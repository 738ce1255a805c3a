// Package group implements the commands of a member of a consumer group. Packages stream and trigger decide when to run
// them.
package group

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/lua"
)

// Page is the maximum number of entries in one request.
const Page = 100

// Every script except takeover may be sent again after a lost reply, because a second run changes nothing more. Fetch
// is an exception in one respect: it counts a delivery for each run.
var (
	acknowledgeScript = redis.NewScript(lua.Script("acknowledge", nil))
	deadLetterScript  = redis.NewScript(lua.Script("deadletter", nil))
	dismissScript     = redis.NewScript(lua.Script("dismiss", nil))
	fetchScript       = redis.NewScript(lua.Script("fetch", nil))
	holdScript        = redis.NewScript(lua.Script("hold", nil))
	takeoverScript    = redis.NewScript(lua.Script("takeover", nil))
)

// Member is one consumer of a group.
type Member struct {
	Client                  redis.UniversalClient
	Stream, Group, Consumer string

	noAckDel atomic.Bool // the server does not support XACKDEL, or the user may not run it
}

// LastID returns the id of the last entry of a stream, or "0" if the stream has no entries.
func LastID(ctx context.Context, client redis.UniversalClient, stream string) (string, error) {
	last, err := client.XRevRangeN(ctx, stream, "+", "-", 1).Result()
	switch {
	case err != nil:
		return "", err
	case len(last) == 0:
		return "0", nil
	default:
		return last[0].ID, nil
	}
}

// Create creates the group, and the stream, if they do not exist. It returns false if the group exists.
func (m *Member) Create(ctx context.Context, start string) (bool, error) {
	err := m.Client.XGroupCreateMkStream(ctx, m.Stream, m.Group, start).Err()
	if HasCode(err, "BUSYGROUP") {
		return false, nil
	}
	return err == nil, err
}

// Read is an XREADGROUP that the client does not retry. After a lost reply, a retry would return other entries, and the entries
// in the lost reply would stay pending for this consumer unnoticed.
type Read struct{ *redis.XStreamSliceCmd }

// NoRetry returns true, so that the client does not retry the command.
func (Read) NoRetry() bool { return true }

// NewRead returns the command that reads up to count new entries. If there are none, the command waits for them for the
// duration block. With a negative block, it does not wait.
func (m *Member) NewRead(ctx context.Context, count int, block time.Duration) Read {
	// A pipeline that is never executed creates the command, including its read timeout.
	return Read{m.Client.Pipeline().XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: m.Group, Consumer: m.Consumer, Streams: []string{m.Stream, ">"}, Count: int64(count), Block: block,
	})}
}

// Entries returns the entries in the reply. If the reply has no entries, it returns none and no error.
func (r Read) Entries() ([]redis.XMessage, error) {
	streams, err := r.Result()
	if errors.Is(err, redis.Nil) || err == nil && len(streams) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return streams[0].Messages, nil
}

// Pending lists the entries that are pending for a consumer, in pages of up to Page entries. If the name is empty, it
// lists those of all consumers. The caller owns each page. An error ends the list.
func (m *Member) Pending(ctx context.Context, consumer string) iter.Seq2[[]redis.XPendingExt, error] {
	return func(yield func([]redis.XPendingExt, error) bool) {
		for from, more := "-", true; more; {
			page, err := m.pendingFrom(ctx, consumer, from)
			if more = err == nil && len(page) == Page; more {
				from = Behind(page[len(page)-1].ID)
			}
			if !yield(page, err) {
				return
			}
		}
	}
}

// pendingFrom uses a transaction, because otherwise the client may send the command to a replica, which may lag behind.
func (m *Member) pendingFrom(ctx context.Context, consumer, from string) ([]redis.XPendingExt, error) {
	var cmd *redis.XPendingExtCmd
	_, err := m.Client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		cmd = pipe.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: m.Stream, Group: m.Group, Start: from, End: "+", Count: Page, Consumer: consumer,
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// takeover is a call of the script that the client does not retry. After the first run, the entries are not idle. A
// second run would return none of them, and they would stay pending for this consumer unnoticed.
type takeover struct{ *redis.Cmd }

// NoRetry returns true, so that the client does not retry the command.
func (takeover) NoRetry() bool { return true }

// Claim takes over those of up to 1,000 entries that have been idle for the given time, and returns their ids. It
// records the consumers that lose them, so that the commits of these consumers are fenced.
func (m *Member) Claim(ctx context.Context, idle time.Duration, ids []string) ([]string, error) {
	keys, args := []string{m.Stream, TakenKey(m.Stream)}, m.args(ids, idle.Milliseconds())
	unsent := m.Client.Pipeline() // creates commands and is never executed
	cmd := takeoverScript.EvalSha(ctx, unsent, keys, args...)
	err := m.Client.Process(ctx, takeover{cmd})
	if HasCode(err, "NOSCRIPT") {
		cmd = takeoverScript.Eval(ctx, unsent, keys, args...)
		err = m.Client.Process(ctx, takeover{cmd})
	}
	if err != nil {
		return nil, err
	}
	return cmd.StringSlice()
}

// Fetched is an entry that was requested by its id.
type Fetched struct {
	Deliveries int64          // number of deliveries, including this one; 0 if the entry is not pending for this consumer
	Values     map[string]any // nil if the stream no longer contains the entry
}

// Fetch delivers entries that are pending for this consumer again.
func (m *Member) Fetch(ctx context.Context, ids ...string) ([]Fetched, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	reply, err := fetchScript.Run(ctx, m.Client, []string{m.Stream}, m.args(ids)...).Slice()
	if err != nil {
		return nil, err
	}
	if len(reply) != len(ids) {
		return nil, fmt.Errorf("script fetch: %d answers to %d entries", len(reply), len(ids))
	}
	out := make([]Fetched, len(ids))
	for i, item := range reply {
		row, _ := item.([]any)
		if len(row) == 0 {
			continue
		}
		out[i].Deliveries, _ = row[0].(int64)
		if len(row) > 1 && row[1] != nil {
			out[i].Values = Values(row[1])
		}
	}
	return out, nil
}

// Values converts a list of alternating names and values into a map, as the client does.
func Values(reply any) map[string]any {
	list, _ := reply.([]any)
	values := make(map[string]any, len(list)/2)
	for pair := range slices.Chunk(list, 2) {
		values[fmt.Sprint(pair[0])] = pair[len(pair)-1]
	}
	return values
}

// Hold sets the idle time of entries that are pending for this consumer. If undelivered is true, it also cancels their
// last delivery.
func (m *Member) Hold(ctx context.Context, ids []string, idle time.Duration, undelivered bool) error {
	for some := range slices.Chunk(ids, Page) {
		args := m.args(some, idle.Milliseconds(), undelivered)
		if err := holdScript.Run(ctx, m.Client, []string{m.Stream}, args...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// args returns the arguments of a script: the group, the consumer, additional arguments, and entries.
func (m *Member) args(ids []string, more ...any) []any {
	args := append([]any{m.Group, m.Consumer}, more...)
	for _, id := range ids {
		args = append(args, id)
	}
	return args
}

// Ack acknowledges an entry. It returns false if the entry was not pending.
func (m *Member) Ack(ctx context.Context, id string) (bool, error) {
	n, err := m.Client.XAck(ctx, m.Stream, m.Group, id).Result()
	return n > 0, err
}

// AckAndDelete acknowledges an entry and deletes it from the stream in one step. Since Redis 8.2, it uses XACKDEL.
// XACKDEL does not delete an entry that is not pending in the group, so a script deletes such an entry.
func (m *Member) AckAndDelete(ctx context.Context, id string) error {
	if !m.noAckDel.Load() {
		done, err := m.Client.XAckDel(ctx, m.Stream, m.Group, "KEEPREF", id).Result()
		switch {
		case err == nil && len(done) == 1 && done[0] == int64(1):
			return nil
		case HasCode(err, "ERR "), HasCode(err, "NOPERM"):
			m.noAckDel.Store(true)
		case err != nil:
			return err
		}
	}
	return acknowledgeScript.Run(ctx, m.Client, []string{m.Stream}, m.Group, id).Err()
}

// Grave contains the destination of an entry that a consumer gives up, and the reason.
type Grave struct {
	Key    string // the key of the dead-letter stream
	Reason string // Bury keeps the first 1,024 bytes
	// Consumer is the consumer to which the entry was last delivered.
	Consumer string
	// First and Last are the times of its deliveries.
	First, Last time.Time
}

// Outcome is the result of moving an entry to the dead letters.
type Outcome string

// The outcomes.
const (
	Moved   Outcome = "moved"
	Trimmed Outcome = "trimmed" // the stream no longer contains the entry, which was acknowledged
	Lost    Outcome = "lost"    // the entry belongs to another consumer, or the group does not exist
)

// Bury moves an entry to a dead-letter stream and acknowledges it, in one step.
func (m *Member) Bury(ctx context.Context, id string, g Grave) (Outcome, error) {
	reply, err := deadLetterScript.Run(ctx, m.Client, []string{m.Stream, g.Key, TakenKey(m.Stream)}, m.Group, m.Consumer,
		id, Reason(g.Reason), g.Consumer, time.Since(g.First).Milliseconds(), time.Since(g.Last).Milliseconds()).Slice()
	if err != nil {
		return "", err
	}
	if len(reply) == 0 {
		return "", errors.New("script deadletter: the reply is empty")
	}
	return Outcome(fmt.Sprint(reply[0])), nil
}

// Dismiss removes the other consumers that have been idle for longer than the given time and have no pending entries. It returns
// their number.
func (m *Member) Dismiss(ctx context.Context, idle time.Duration) (int64, error) {
	return dismissScript.Run(ctx, m.Client, []string{m.Stream}, m.Group, m.Consumer, idle.Milliseconds()).Int64()
}

// Leave removes this consumer from the group if it has no pending entries.
func (m *Member) Leave(ctx context.Context) error {
	err := dismissScript.Run(ctx, m.Client, []string{m.Stream}, m.Group, m.Consumer, "").Err()
	if IsGone(err) {
		return nil
	}
	return err
}
