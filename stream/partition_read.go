package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/inbound"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

// idlePause is the time between two checks of a partition for which there is no free connection to wait on.
const idlePause = 50 * time.Millisecond

// item is an entry of a partition that was read and is not settled.
type item struct {
	entry
	fields    any   // as they were read
	size      int64 // bytes of decoded data
	aggregate string
	at        message.Position
	msg       *message.RawMessage
	err       error         // why there is no message, or why it was nacked
	again     bool          // it was nacked: it is to be read again, at due
	early     bool          // it was given out with one in front of it that failed
	released  bool          // it is another's
	handed    bool          // a handler has had it
	settled   chan struct{} // closed when it is, and the fields above are final
}

// serve reads and delivers until ctx ends.
func (p *partition) serve(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		err := p.turn(ctx)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		p.failed(ctx, "read", err)
		sleep.For(ctx, max(readBackoff.Delay(failures), minBlock))
	}
}

// turn delivers the next messages, and reads them first if necessary. It reads a nacked message again, which counts the
// delivery and shows that this member still holds the partition.
func (p *partition) turn(ctx context.Context) error {
	if !p.mine() {
		p.ahead = nil // entries that are still pending then are read again
	}
	if len(p.ahead) == 0 || p.ahead[0].again {
		if len(p.ahead) > 0 && !sleep.For(ctx, time.Until(p.ahead[0].due)) {
			return nil
		}
		if err := p.read(ctx); err != nil || len(p.ahead) == 0 || ctx.Err() != nil {
			return err
		}
		p.outage.over("read")
	} else if due := p.ahead[0].due; !due.IsZero() && !sleep.For(ctx, time.Until(due)) {
		return nil
	}
	head := p.ahead[0]
	if p.open(head); head.msg == nil {
		p.refuse(ctx, head)
		return nil
	}
	run := p.run()
	p.chain(run)
	p.since.Store(int64(time.Since(p.begun)))
	p.m.inFlight.Add(int64(len(run)))
	p.m.give(ctx, p, run)
	p.m.inFlight.Add(-int64(len(run)))
	p.since.Store(0)
	p.judge(ctx, run)
	return nil
}

// run returns the messages that may be delivered together: consecutive ones with different aggregates.
func (p *partition) run() []*item {
	seen := map[string]bool{}
	var decoded int64
	for i, it := range p.ahead {
		if i < p.m.most && !it.again {
			p.open(it)
		}
		if decoded += it.size; i > 0 && it.size > 0 && decoded > p.cfg.MaxDecodedBytes {
			it.msg, it.size = nil, 0 // opened again when it is the first
			return p.ahead[:i]
		}
		if i == p.m.most || it.msg == nil || it.again || seen[it.aggregate] || it.early && i > 0 && p.ahead[0].nacks > 0 {
			return p.ahead[:i]
		}
		seen[it.aggregate] = true
	}
	return p.ahead
}

// judge keeps the failed messages of a run before those behind it.
func (p *partition) judge(ctx context.Context, run []*item) {
	var failed []*item
	for _, it := range run {
		switch {
		case !isSettled(it) || it.released:
			// It is pending still, or another's: the next read says so. If it is not, a newer owner, or an operator, has only moved
			// the position.
			p.giveBack()
			p.tenure = new(message.Tenure)
			return
		case settle.IsUntried(it.err), errors.Is(it.err, message.ErrStopped):
			failed = append(failed, p.renewed(it))
		case it.err != nil && p.fails(ctx, it):
			failed = append(failed, it)
		}
	}
	p.ahead = append(failed, p.ahead[len(run):]...)
}

// giveBack forgets the items that were read. Those that no handler has had count as undelivered.
func (p *partition) giveBack() {
	var ids []string
	for _, it := range p.ahead {
		if !it.handed {
			ids = append(ids, it.id)
		}
	}
	p.subscription.offer(ids, 0, true)
	p.ahead = nil
}

// renewed returns an item that was not tried, to be given out again behind the one in front of it, or after a pause if it is at fault
// itself. That counts no delivery. If a failover has lost the commit of an earlier entry, the pending entries are read again instead,
// the earlier one first, which counts a delivery of each.
func (p *partition) renewed(it *item) *item {
	again := p.item(it.id, it.deliveries, it.fields)
	again.first, again.nacks = it.first, it.nacks
	_, early := errors.AsType[*message.EarlyError](it.err)
	if early && it.at.After != "" {
		again.early = true
		return again
	}
	if early {
		again.again, p.tenure = true, new(message.Tenure) // the former tenure counts the lost commit
	}
	again.nacks++
	again.due = time.Now().Add(p.cfg.NackBackoff.Delay(again.nacks))
	return again
}

func isSettled(it *item) bool {
	select {
	case <-it.settled:
		return true
	default:
		return false
	}
}

// refuse handles an entry that cannot be decoded.
func (p *partition) refuse(ctx context.Context, it *item) {
	p.counts.malformed.Add(1)
	it.err = message.Permanent(it.err)
	if p.fails(ctx, it) {
		return
	}
	p.ahead = p.ahead[1:]
}

// fails reports whether an item waits for redelivery. Otherwise it has become a dead letter.
func (p *partition) fails(ctx context.Context, it *item) (waits bool) {
	permanent := message.IsPermanent(it.err)
	if p.cfg.DeadLetter != "" && (permanent || p.usedUp(it.deliveries)) {
		return !p.deadLetterItem(ctx, it, it.err.Error())
	}
	it.again = true
	it.nacks++
	delay, asked := message.RetryDelay(it.err)
	switch {
	case permanent:
		delay = p.cfg.MaxIdleTime
		if p.logged != it.id {
			p.logged = it.id
			p.outage.log.Error("stream: partition blocked by a refused message",
				"entry", it.id, "error", it.err)
		}
	case !asked:
		delay = p.cfg.NackBackoff.Delay(it.nacks)
	}
	it.due = time.Now().Add(delay)
	return true
}

// deadLetterItem moves an item to the dead-letter stream. It retries until that succeeds or ctx has ended.
func (p *partition) deadLetterItem(ctx context.Context, it *item, reason string) bool {
	reason = group.Reason(reason)
	for failures := 1; ; failures++ {
		outcome, err := p.writeDeadLetter(&it.entry, reason)
		if err == nil {
			p.noteDeadLetter(&it.entry, outcome, reason)
			return true
		}
		p.outage.begins("dead-letter", err)
		if !sleep.For(ctx, max(readBackoff.Delay(failures), minBlock)) {
			return false
		}
	}
}

// read reads the next entries into ahead, and waits for them if there are none.
func (p *partition) read(ctx context.Context) error {
	reply, err := partitionScript.Run(ctx, p.client, []string{p.void, p.lease, p.cfg.Stream, p.taken},
		p.m.name, p.cfg.Group, p.cfg.BatchSize, p.cfg.MaxDeliveries, p.fresh).Slice()
	if err != nil {
		return err
	}
	if len(reply) == 0 {
		return errors.New("script partition: the reply is empty")
	}
	kind := fmt.Sprint(reply[0])
	if kind == "lost" {
		p.ahead = nil
		<-ctx.Done() // the keeper notices the lost lease itself, and ends ctx
		return nil
	}
	p.fresh = false
	return p.answer(ctx, kind, reply[1:])
}

func (p *partition) answer(ctx context.Context, kind string, reply []any) error {
	was := p.ahead
	p.ahead = nil
	if len(reply) == 0 {
		return fmt.Errorf("script partition: %s and nothing", kind)
	}
	id := fmt.Sprint(reply[0])
	switch kind {
	case "none":
		return p.wait(ctx, id)
	case "new":
		entries, _ := reply[0].([]any)
		for _, e := range entries {
			if pair, _ := e.([]any); len(pair) == 2 {
				p.ahead = append(p.ahead, p.item(fmt.Sprint(pair[0]), 1, pair[1]))
			}
		}
	case "old":
		deliveries, _ := reply[1].(int64)
		it := p.item(id, deliveries, reply[2])
		p.counts.redelivered.Add(1)
		p.ahead = []*item{it}
		if len(was) > 0 && was[0].id == id {
			it.nacks, it.first = was[0].nacks, was[0].first
			p.ahead = append(p.ahead, was[1:]...)
		}
	case "used":
		deliveries, _ := reply[1].(int64)
		p.deadLetterItem(ctx, p.item(id, deliveries, nil), fmt.Sprintf("delivered %d times and never settled: its consumers died or hung", deliveries))
	case "trimmed":
		p.noteTrimmed(id)
	default:
		return fmt.Errorf("script partition: unexpected reply %q", kind)
	}
	return nil
}

// item makes an item of an entry.
func (p *partition) item(id string, deliveries int64, fields any) *item {
	now := time.Now()
	return &item{
		entry:  entry{id: id, deliveries: deliveries, from: p.member.Consumer, first: now, read: now},
		fields: fields, settled: make(chan struct{}),
	}
}

// Fields implements group.Entry.
func (it *item) Fields() []string {
	list, _ := it.fields.([]any)
	fields := make([]string, len(list))
	for i, text := range list {
		fields[i] = fmt.Sprint(text)
	}
	return fields
}

// Deliveries implements group.Entry.
func (it *item) Deliveries() int64 { return it.deliveries }

// open makes the message of an item that has none yet.
func (p *partition) open(it *item) {
	if it.msg != nil || it.err != nil {
		return
	}
	id := it.id
	if it.msg, it.size, it.err = p.unmarshal(id, group.Values(it.fields)); it.err != nil {
		it.msg = nil
		return
	}
	// A message without a readable aggregate is handled on its own among such messages.
	it.aggregate, _ = p.aggregateOf(it.msg)
	it.msg.WithValue(group.EntryKey{}, group.Entry(it))
	it.at = message.Position{Source: p.m.cfg.Stream, Partition: p.tag, Offset: group.Offset(id)}
}

// chain gives the messages of a run their acking and position. Each message comes after the one in front of it.
func (p *partition) chain(run []*item) {
	after := ""
	for _, it := range run {
		it.at.After, it.at.Tenure = after, p.tenure
		after = it.at.Offset
		p.own(it)
	}
}

// own gives the message of an item its acking.
func (p *partition) own(it *item) {
	id := it.id
	it.msg.SetAcking(message.NewAckingFrom(message.AckingConfig{
		Ack:     func() { p.ack(id) },
		Nack:    func(err error) { it.err = err },
		Release: func() { it.released = true },
		Settled: func() {
			p.notifySettled(&it.entry, it.err, it.released)
			close(it.settled)
		},
		Source:   p.source(&it.entry),
		Position: it.at,
	}))
}

func (p *partition) aggregateOf(msg *message.RawMessage) (id string, err error) {
	defer inbound.RecoverTo(&err)
	return p.m.cfg.Aggregate(msg)
}

// wait waits for an entry after the last one. It reads nothing for the group, so the end of the member need not wait for
// it.
func (p *partition) wait(ctx context.Context, last string) error {
	select {
	case p.m.waits <- struct{}{}:
	default:
		sleep.For(ctx, idlePause)
		return nil
	}
	done := make(chan error, 1)
	p.m.tenures.Go(func() {
		err := p.client.XRead(ctx, &redis.XReadArgs{Streams: []string{p.cfg.Stream, last}, Count: 1, Block: p.cfg.BlockTimeout}).Err()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		<-p.m.waits
		done <- err
	})
	select {
	case <-ctx.Done():
		return nil
	case err := <-done:
		return err
	}
}
