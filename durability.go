package luatx

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
)

// Durability makes a commit wait until it has reached replicas, or disks: an answered commit that only the master
// knows is lost with the master. Whether it has is in Result.Replicated; falling short is no error, for the commit
// is in, and may yet arrive. The zero value waits for nothing.
//
// The wait travels behind the commit on the same connection (WAIT, or WAITAOF for Fsync), and is shared by all
// commits that share its round trip. Where the server does not know it or denies it, Replicated stays false, and
// one line of the log says why. While replicas are out of reach every commit takes Timeout.
//
// It does not keep others from seeing a commit before it is replicated, and the Middleware acknowledges a message
// whether it is or not.
type Durability struct {
	// Replicas is how many replicas must have received a commit. Defaults to 0.
	Replicas int

	// Fsync asks for the commit on disk: the master's, and those of as many replicas as Replicas says. It needs
	// Redis 7.2 and appendonly. Defaults to false.
	Fsync bool

	// Timeout bounds the wait. A caller with less than twice as much time left waits for half of it, in a round trip of
	// its own. Defaults to
	// 1 second, with Fsync to 3, since a server with appendfsync everysec takes up to 2; less than the client's
	// ReadTimeout.
	Timeout time.Duration
}

func (d Durability) withDefaults() Durability {
	switch {
	case d.Timeout == 0 && d.Fsync:
		d.Timeout = 3 * time.Second
	case d.Timeout == 0 && d.Replicas > 0:
		d.Timeout = time.Second
	}
	return d
}

func (d Durability) validate() error {
	switch {
	case d.Replicas < 0:
		return fmt.Errorf("luatx: Config.Durability.Replicas is %d: use 0, or more", d.Replicas)
	case d.Timeout != 0 && d.Replicas == 0 && !d.Fsync:
		return fmt.Errorf("luatx: Config.Durability.Timeout is %v, and there is nothing to wait for: set Replicas or Fsync", d.Timeout)
	case d.Timeout != 0 && d.Timeout < time.Millisecond:
		return fmt.Errorf("luatx: Config.Durability.Timeout is %v: use at least 1ms, or 0 for the default", d.Timeout)
	}
	return nil
}

// fits checks that the client waits for a reply as long as the server does.
func (d Durability) fits(client redis.UniversalClient) error {
	reads := eval.ReadTimeout(client)
	if reads > 0 && d.Timeout >= reads {
		return fmt.Errorf("luatx: Config.Durability.Timeout is %v, and the client gives up after its ReadTimeout, %v: use less, or a longer ReadTimeout", d.Timeout, reads)
	}
	return nil
}

func (d Durability) script() eval.Durability {
	return eval.Durability{Replicas: d.Replicas, Fsync: d.Fsync, Timeout: d.Timeout}
}
