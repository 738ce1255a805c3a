package script

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// What every commit of a shard begins with: the shard's keys, and the head of the arguments.
const (
	commitKeys = 7
	commitHead = 4 // the digests come next
)

// Sending is a transaction that is sent, and what became of it.
type Sending struct {
	Shard Shard
	Tx    Tx

	Outcome    Outcome
	Now        time.Time // the server's, with the outcome
	Unanswered bool      // a copy of an earlier request may still arrive
	Replicated bool      // as far as Constants.Durability asks
	Err        error     // there is no outcome

	request request
}

// Send commits each transaction, and returns when each is answered or ctx has ended. They share round trips and
// scripts with each other, and with what others send at the same time; each is whole or absent for itself. There
// is no order among them.
//
// The tail goes out with them, once, behind them in the same pipeline, for what a consumer does next; its commands
// bear their own errors. Such a batch shares nothing with others.
func (s *Set) Send(ctx context.Context, batch []*Sending, tail ...redis.Cmder) {
	var few [4]*request
	open := few[:0]
	for _, b := range batch {
		b.request = s.request(b.Shard, &b.Tx)
		b.request.alone = s.durability.On() && !s.durability.patient(ctx)
		open = append(open, &b.request)
	}
	s.evalAll(ctx, open, queued, tail...)
	for _, b := range batch {
		b.read()
	}
}

// Commit sends a batch of transactions of one shard. The bool says whether a copy of one may still arrive; the time
// is the server's. The error is the first.
func (s *Set) Commit(ctx context.Context, shard Shard, batch []Tx) ([]Outcome, time.Time, bool, error) {
	sendings := make([]*Sending, len(batch))
	for i := range batch {
		sendings[i] = &Sending{Shard: shard, Tx: batch[i]}
	}
	s.Send(ctx, sendings)
	var now time.Time
	unanswered, outcomes := false, make([]Outcome, len(batch))
	for i, b := range sendings {
		if b.Err != nil {
			return nil, now, b.Unanswered, b.Err
		}
		outcomes[i], now, unanswered = b.Outcome, b.Now, unanswered || b.Unanswered
	}
	return outcomes, now, unanswered, nil
}

// request lays a transaction out as lua/commit.lua reads a batch of one.
func (s *Set) request(shard Shard, tx *Tx) request {
	size := tx.arguments()
	keys, args := commitKeys+len(tx.Keys), commitHead+1+size
	if tx.Input.Ack != AckNone {
		keys++
	}
	if tx.Keep {
		keys += 2
	}
	var entrance []string
	if tx.special() {
		entrance = shard.entranceKeys()
		keys += len(entrance)
	}
	r := newRequest(&s.commit, keys, args)
	r.durability = s.durability
	r.slot = shard.Slot
	r.argv = append(r.argv, shard.commit[:]...)
	if tx.Input.Ack != AckNone {
		r.argv = append(r.argv, &tx.Input.Stream)
	}
	if tx.Keep {
		r.argv = append(r.argv, shard.Key(keyResults), shard.Key(keyResultsB))
	}
	for _, key := range entrance {
		r.argv = append(r.argv, key)
	}
	for i := range tx.Keys {
		r.argv = append(r.argv, &tx.Keys[i])
	}
	r.argv = append(r.argv, 1, &tx.Input.Stream, &tx.Input.Group, &tx.Input.Consumer, &tx.Digest)
	r.own = len(r.argv) + tx.header()
	r.argv = tx.append(r.argv, s.plans.of(tx, size, s.stringsOnly.Load()))
	if tx.Input.Ack != AckNone {
		r.input = &tx.Input
	}
	return r
}

// read reads the answer.
func (b *Sending) read() {
	r := &b.request
	b.Unanswered, b.Replicated, b.Err = r.unanswered, r.replicated, r.err
	if b.Err != nil {
		return
	}
	var rows []any
	b.Now, rows, b.Err = timed(r.reply)
	if b.Err == nil {
		b.Outcome, b.Err = outcome(answerTo(rows, r.row), len(b.Tx.Commands))
	}
	if out, order := &b.Outcome, b.Tx.Order; out.Index > 0 && out.Index <= len(order) {
		out.Index = order[out.Index-1] + 1
	}
	if b.Err != nil {
		b.Unanswered = true // whatever it says
	}
}
