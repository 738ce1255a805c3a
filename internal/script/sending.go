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
	Tries      uint16    // round trips
	Batch      uint16    // how many transactions shared the last script
	Err        error     // there is no outcome

	request request
}

// Send commits each transaction, and returns when each is answered, ctx has ended, or it is the time until; zero: ctx
// alone says when. They share round trips and scripts with each other, and with what others send at the same time; each
// is whole or absent for itself. There is no order among them.
//
// The tail goes out with them, once, behind them in the same pipeline, for what a consumer does next; its commands
// bear their own errors. Such a batch shares nothing with others.
func (s *Set) Send(ctx context.Context, until time.Time, batch []*Sending, tail ...redis.Cmder) {
	var few [4]*request
	open := few[:0]
	for _, b := range batch {
		b.request = s.request(b.Shard, &b.Tx)
		b.request.until = until
		b.request.alone = s.durability.On() && !s.durability.patient(ctx, until)
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
	s.Send(ctx, time.Time{}, sendings)
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

// part is a transaction's part of a script.
type part struct {
	tx    *Tx
	shard Shard
	plan  any
	args  int // how many come behind the head and the digests
}

// request asks for a commit of a transaction.
func (s *Set) request(shard Shard, tx *Tx) request {
	tx.notAfter = tx.NotAfter.UnixMilli()
	size := tx.arguments()
	keys := commitKeys + len(tx.Keys)
	if tx.Input.Ack != AckNone {
		keys++
	}
	if tx.Keep {
		keys += 2
	}
	if tx.special() {
		keys += len(entrance)
	}
	return request{
		script: &s.commit, keys: keys, durability: s.durability,
		part: part{tx, shard, s.plans.of(tx, size, s.stringsOnly.Load()), size},
	}
}

// lay lays a commit out as lua/commit.lua reads a batch of one. Where it shares a script there is no need to.
func (r *request) lay() {
	if r.argv != nil {
		return
	}
	p := &r.part
	argv := make([]any, 0, firstKey+r.keys+commitHead+1+p.args)
	argv = append(argv, "evalsha", r.script.argument, r.keys)
	argv = p.appendKeys(append(argv, p.shard.commit[:]...))
	argv = append(argv, 1, &p.tx.Input.Stream, &p.tx.Input.Group, &p.tx.Input.Consumer, &p.tx.Digest)
	r.argv = p.tx.append(argv, p.plan)
}

// appendKeys appends the keys that are not those of every commit.
func (p *part) appendKeys(argv []any) []any {
	tx := p.tx
	if tx.Input.Ack != AckNone {
		argv = append(argv, &tx.Input.Stream)
	}
	if tx.Keep {
		argv = append(argv, p.shard.Key(keyResults), p.shard.Key(keyResultsB))
	}
	if tx.special() {
		for _, key := range p.shard.entranceKeys() {
			argv = append(argv, key)
		}
	}
	for i := range tx.Keys {
		argv = append(argv, &tx.Keys[i])
	}
	return argv
}

// read reads the answer.
func (b *Sending) read() {
	r := &b.request
	b.Unanswered, b.Replicated, b.Err = r.unanswered, r.replicated, r.err
	b.Tries, b.Batch = b.Tries+r.tries, r.batch
	if b.Err != nil {
		return
	}
	if b.Now, b.Err = r.flight.call.now, r.flight.call.malformed; b.Err == nil {
		b.Outcome, b.Err = outcome(r.flight.answer, len(b.Tx.Commands))
	}
	if out, order := &b.Outcome, b.Tx.Order; out.Index > 0 && out.Index <= len(order) {
		out.Index = order[out.Index-1] + 1
	}
	if b.Err != nil {
		b.Unanswered = true // whatever it says
	}
}
