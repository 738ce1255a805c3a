package luatx

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
)

// Durability makes a commit wait until it has reached replicas or disks. Without it, a commit that only the master has is lost
// with the master. Result.Replicated reports whether the commit reached them. If it did not, there is no error, because the
// commit took effect and may still be replicated. The zero value does not wait.
//
// The wait (WAIT, or WAITAOF with Fsync) follows the commit on the same connection; commits that share a round trip share the
// wait. If the server does not know or denies the command, Replicated is false and the log states the reason once. While replicas
// are unreachable, every commit takes Timeout.
//
// Others can see a commit before it is replicated. Middleware acknowledges the message even if the commit is not replicated.
type Durability struct {
	// Replicas is the number of replicas that must have received a commit. Defaults to 0.
	Replicas int

	// Fsync waits until the commit is on the disks of the master and of Replicas replicas. It needs Redis 7.2 and appendonly.
	// Defaults to false.
	Fsync bool

	// Timeout bounds the wait. If the caller has less than twice Timeout left, the commit waits for half of the remaining time,
	// in a separate round trip. Defaults to 1 second, and with Fsync to 3 seconds, because a server with appendfsync everysec
	// takes up to 2. It must be less than the client's ReadTimeout.
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
		return fmt.Errorf("luatx: Config.Durability.Replicas is %d; use 0, or more", d.Replicas)
	case d.Timeout != 0 && d.Replicas == 0 && !d.Fsync:
		return fmt.Errorf("luatx: Config.Durability.Timeout is %v, and there is nothing to wait for; set Replicas or Fsync", d.Timeout)
	case d.Timeout != 0 && d.Timeout < time.Millisecond:
		return fmt.Errorf("luatx: Config.Durability.Timeout is %v; use at least 1ms, or 0 for the default", d.Timeout)
	}
	return nil
}

// fits checks that the wait ends before the client's ReadTimeout.
func (d Durability) fits(client redis.UniversalClient) error {
	reads := eval.ReadTimeout(client)
	if reads > 0 && d.Timeout >= reads {
		return fmt.Errorf("luatx: Config.Durability.Timeout is %v, and the client gives up after its ReadTimeout, %v; use less, or a longer ReadTimeout", d.Timeout, reads)
	}
	return nil
}

func (d Durability) script() eval.Durability {
	return eval.Durability{Replicas: d.Replicas, Fsync: d.Fsync, Timeout: d.Timeout}
}
