package stream

import (
	"context"
	"sync"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/message"
)

// offer delivers the single message of a run through a channel. The message stays pending if nobody receives it before ctx
// ends.
func (p *partition) offer(ctx context.Context, out chan<- *message.RawMessage, run []*item) {
	run[0].read = time.Now()
	select {
	case out <- run[0].msg:
		run[0].handed = true
		p.given(&run[0].entry, "")
		p.await(run)
	case <-ctx.Done():
	}
}

// await waits until the messages are settled, or until the handlers have no more time.
func (p *partition) await(run []*item) {
	for _, it := range run {
		select {
		case <-it.settled:
		case <-p.m.work.Done():
			return
		}
	}
}

// handle runs the handlers of a run and commits what they recorded together.
func (p *partition) handle(t *luatx.Transactor, process Processor, run []*item) {
	for _, it := range run {
		it.read, it.handed = time.Now(), true
		p.given(&it.entry, "")
	}
	g := link.Of(t).Gather(p.m.work, len(run), consumeLinger, nil)
	var handlers sync.WaitGroup
	for _, it := range run {
		handlers.Go(func() {
			defer g.Leave()
			if err := processed(g.Context(p.m.work), process, it.msg); err != nil {
				it.msg.Nack(err) // has no effect if the message is settled
				p.outage.log.Error("stream: message not handled", "id", it.msg.ID(), "error", err)
			}
		})
	}
	handlers.Wait()
	p.await(run)
}
