package trigger

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// silence is after how much of it a connection is asked for a sign of life; after twice that it is given up.
const silence = 3 * time.Second

var (
	errSilent = errors.New("the server is silent")
	errMoved  = errors.New("the server has ended a subscription: the slot of its channel has moved")
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
		_ = c.sub.Close() // nothing is left to be said on it
	}
	s.running.Wait()
}

// connection is one that is subscribed.
type connection struct {
	sub    *redis.PubSub
	early  []received   // came before all was confirmed
	heard  atomic.Int64 // when anything was, in ns
	full   atomic.Bool  // received messages wait for room
	silent atomic.Bool  // given up for its silence
}

func (c *connection) hear() { c.heard.Store(time.Now().UnixNano()) }

// watch asks a connection that is silent for a sign of life, and gives it up where none comes.
func (c *connection) watch(done <-chan struct{}) {
	tick := time.NewTicker(silence / 3)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		quiet := time.Since(time.Unix(0, c.heard.Load()))
		switch {
		case c.full.Load() || quiet < silence:
		case quiet < 2*silence:
			_ = c.sub.Ping(context.Background()) // what breaks shows itself to the reader
		default:
			c.silent.Store(true)
			_ = c.sub.Close() // the reader then gets an error
			return
		}
	}
}
