package stream

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

// readBackoff is the pause between attempts while the server fails.
var readBackoff = message.Backoff{Base: 50 * time.Millisecond, Max: 2 * time.Second}

// minBlock keeps a reader that waits for the next redelivery from spinning.
const minBlock = 10 * time.Millisecond

// reader is the state of the reading loop.
type reader struct {
	*subscription
	// recoverOwn reports that entries may be pending for this consumer that it never received: at the start, and after a lost
	// reply.
	recoverOwn atomic.Bool
	claimAt    time.Time
}

func newReader(s *subscription) *reader {
	r := &reader{subscription: s, claimAt: time.Now()}
	r.recoverOwn.Store(true)
	return r
}

func (r *reader) loop(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		err := r.upkeep(ctx)
		if err == nil {
			err = r.readNew(ctx)
		}
		failures = r.rest(ctx, failures, err)
	}
}

// rest pauses after an error, longer with every error in a row, and returns the number of errors in a row.
func (r *reader) rest(ctx context.Context, failures int, err error) int {
	if err == nil {
		return 0
	}
	r.failed(ctx, "read", err)
	sleep.For(ctx, max(readBackoff.Delay(failures+1), minBlock))
	return failures + 1
}

// upkeep delivers entries that are pending but not in flight: those of this consumer, and at intervals those of others.
func (r *reader) upkeep(ctx context.Context) error {
	if r.recoverOwn.Swap(false) {
		if err := r.readOwn(ctx); err != nil {
			r.recoverOwn.Store(true)
			return err
		}
	}
	if !time.Now().Before(r.claimAt) {
		r.claimAt = time.Now().Add(r.cfg.ClaimInterval)
		// New entries are read whether this works or not.
		if err := r.claim(ctx); err != nil {
			r.lost(err)
			r.failed(ctx, "claim", err)
		} else {
			r.outage.over("claim")
			r.dismiss(ctx)
			r.trim(ctx)
		}
	}
	return nil
}

// readNew delivers new entries.
func (r *reader) readNew(ctx context.Context) error {
	batch, err := r.await(ctx)
	for _, msg := range batch {
		r.out <- msg
	}
	return err
}

// await reads new entries. It waits for them until another task of the loop is due.
func (r *reader) await(ctx context.Context) ([]*message.RawMessage, error) {
	places := r.ledger.reserve(ctx, r.cfg.BatchSize)
	if places == 0 {
		return nil, nil
	}
	block := max(r.ledger.untilDue(time.Until(r.claimAt)), minBlock)
	cmd := r.member.NewRead(ctx, places, min(block, r.cfg.BlockTimeout))
	_ = r.client.Process(ctx, cmd) // the command holds its error
	return r.openReply(cmd, places)
}

// openReply opens the entries of a reply and releases unused places. Entries that are already in flight or waiting need no
// place.
func (r *reader) openReply(cmd group.Read, places int) ([]*message.RawMessage, error) {
	defer func() { r.ledger.release(places) }()
	entries, err := cmd.Entries()
	if err != nil {
		r.lost(err)
		return nil, err
	}
	r.outage.over("read")
	batch := make([]*message.RawMessage, 0, len(entries))
	for _, x := range entries {
		e, fresh := r.ledger.hold(x.ID)
		if !fresh {
			continue
		}
		places--
		if msg := r.open(e, group.Fetched{Deliveries: 1, Values: x.Values}); msg != nil {
			batch = append(batch, msg)
		}
	}
	return batch, nil
}

// readOwn delivers entries that are pending for this consumer but not in its ledger.
func (r *reader) readOwn(ctx context.Context) error {
	known := r.ledger.known()
	for page, err := range r.member.Pending(ctx, r.member.Consumer) {
		if err != nil {
			return err
		}
		lost := slices.DeleteFunc(page, func(p redis.XPendingExt) bool { return known[p.ID] })
		for len(lost) > 0 {
			places := r.ledger.reserve(ctx, min(len(lost), r.cfg.BatchSize))
			if places == 0 {
				return nil
			}
			left, err := r.takeIn(ctx, lost[:places])
			r.ledger.release(left)
			if err != nil {
				return err
			}
			lost = lost[places:]
		}
	}
	return nil
}

// lost records that a reply with entries may be lost or still to come. A cancelled context is neither, because it ends a
// request only before it is sent.
func (r *reader) lost(err error) {
	r.recoverOwn.Store(true)
	if !group.IsReply(err) && !errors.Is(err, context.Canceled) {
		r.doubt.Store(true)
	}
}

// failed handles an error: it logs the error, and creates the group again or reloads the state of the cluster.
func (s *subscription) failed(ctx context.Context, op string, err error) {
	if ctx.Err() != nil {
		return
	}
	switch {
	case group.IsGone(err):
		made, err := s.member.Create(ctx, s.start)
		if err != nil {
			s.outage.begins(op, err)
		} else if made {
			s.outage.log.Error("stream: group created again", "start", s.start)
		}
	default:
		s.outage.begins(op, err)
		if c, ok := s.client.(interface{ ReloadState(ctx context.Context) }); ok && !group.IsReply(err) {
			c.ReloadState(ctx)
		}
	}
}
