package trigger

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// silence is the time without data after which a connection is pinged. After twice that time it is abandoned.
const silence = 3 * time.Second

var (
	errSilent = errors.New("the server did not reply")
	errMoved  = errors.New("the server ended a subscription because the slot of its channel has moved")
)

// subscriptions are the connections between two reconnects.
type subscriptions struct {
	connections []*connection
	done        chan struct{}
	running     sync.WaitGroup
}

func (s *subscriptions) close() {
	close(s.done)
	for _, c := range s.connections {
		_ = c.sub.Close() // closed when nothing reads from the connections any more
	}
	s.running.Wait()
}

// connection is a subscribed connection.
type connection struct {
	sub    *redis.PubSub
	early  []received   // messages that arrived before all subscriptions were confirmed
	heard  atomic.Int64 // time of the last data, in ns
	full   atomic.Bool  // received messages wait for room
	silent atomic.Bool  // abandoned because of its silence
}

func (c *connection) hear() { c.heard.Store(time.Now().UnixNano()) }

// watch pings a silent connection, and abandons it if there is no reply.
func (c *connection) watch(done <-chan struct{}) {
	tick := time.Tick(silence / 3)
	for {
		select {
		case <-done:
			return
		case <-tick:
		}
		quiet := time.Since(time.Unix(0, c.heard.Load()))
		switch {
		case c.full.Load() || quiet < silence:
		case quiet < 2*silence:
			_ = c.sub.Ping(context.Background()) // the reader notices a broken connection
		default:
			c.silent.Store(true)
			_ = c.sub.Close() // closing it notifies the reader
			return
		}
	}
}
