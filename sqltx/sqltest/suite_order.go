package sqltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
)

// testSideBySide tests that several publishers share the rows, and that each row is handed out by one of them.
func testSideBySide(t *testing.T, s *suite) {
	const total = 2000
	names := numbered("e", total)
	for i := 0; i < total; i += 500 {
		s.emit(t, "", names[i:i+500]...)
	}
	var seen tally
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	shares := make([]int, 4)
	for i := range shares {
		p := s.publisher(func(c *sqltx.OutboxPublisherConfig) { c.BatchSize = 50 })
		source, err := p.Source(ctx)
		must(t, err)
		all.Go(func() {
			for msg := range source {
				seen.add(name(t, msg))
				shares[i]++
				msg.Ack()
			}
			p.Wait()
		})
	}
	eventually(t, "all are published", func() bool { return s.rows(t, s.outbox, "published = TRUE") == total })
	cancel()
	all.Wait()
	if names, times := seen.total(); names != total || times != total {
		t.Errorf("%d events, handed out %d times, want %d once; shares %v", names, times, total, shares)
	}
}

// testOrder tests that the events of a key are published one after the other and in order, with several publishers and failures.
func testOrder(t *testing.T, s *suite) {
	const keys, each = 7, 60
	for batch := range each / 10 {
		for k := range keys {
			var names []string
			for i := range 10 {
				names = append(names, fmt.Sprintf("k%d-%04d", k, batch*10+i))
			}
			s.emit(t, fmt.Sprintf("k%d", k), names...)
		}
	}
	var mu sync.Mutex
	next, held := map[string]int{}, map[string]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 3 {
		p := s.publisher(func(c *sqltx.OutboxPublisherConfig) { c.BatchSize, c.Attempts = 20, 1000 })
		source, err := p.Source(ctx)
		must(t, err)
		all.Go(func() {
			var workers sync.WaitGroup
			for range 4 {
				workers.Go(func() {
					for msg := range source {
						key := msg.PartitionKey()
						mu.Lock()
						if want := fmt.Sprintf("%s-%04d", key, next[key]); name(t, msg) != want || held[key] {
							t.Errorf("%s, want %s; held: %v", name(t, msg), want, held[key])
						}
						held[key] = true
						mu.Unlock()
						settle := rand.IntN(10)
						mu.Lock()
						held[key] = false
						if settle > 1 {
							next[key]++
						}
						mu.Unlock()
						switch settle {
						case 0:
							msg.Nack(errors.New("not now"))
						case 1:
							msg.Release()
						default:
							msg.Ack()
						}
					}
				})
			}
			workers.Wait()
			p.Wait()
		})
	}
	eventually(t, "all are published", func() bool { return s.rows(t, s.outbox, "published = TRUE") == keys*each })
	cancel()
	all.Wait()
}

// testOneOwner tests that an earlier event of a key that commits late waits while a publisher holds another event of the key.
func testOneOwner(t *testing.T, s *suite) {
	if s.Locked {
		t.Skip("one writer at a time: nothing commits late")
	}
	first, second := s.source(t, s.publisher()), s.source(t, s.publisher())
	begun, commit, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.transact(t.Context(), func(ctx context.Context) error {
			err := sqltx.Emit(ctx, s.outboxConfig(), events("k", "early")...)
			close(begun)
			<-commit
			return err
		})
	}()
	<-begun
	s.emit(t, "k", "late")
	either := func() *message.RawMessage {
		select {
		case msg := <-first:
			return msg
		case msg := <-second:
			return msg
		}
	}
	holding := either()
	if got := name(t, holding); got != "late" {
		t.Fatalf("%s was handed out", got)
	}
	close(commit)
	must(t, <-done)
	silent(t, first, 100*1e6)
	silent(t, second, 100*1e6)
	holding.Ack()
	msg := either()
	if got := name(t, msg); got != "early" {
		t.Errorf("%s was handed out", got)
	}
	msg.Ack()
}
