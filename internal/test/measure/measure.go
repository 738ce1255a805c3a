// Package measure compares ways to do the same work, side by side in one run of one process. The ways take turns,
// round by round. The package compares ratios within a round, because other load on the machine affects all ways of
// a round.
package measure

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cell is one point of a comparison: the same work for every way.
type Cell struct {
	// Name says what sets the cell apart, such as "64 callers".
	Name string
	// Callers is how many goroutines call Op at once. Defaults to 1.
	Callers int
	// Payload is the bytes of an event's body. Defaults to 300.
	Payload int
	// Tags is how many tags the transactions are spread over. Defaults to 1.
	Tags int
	// Ops is the number of operations of a round. Defaults to as many as the way needs for a round's time.
	Ops int
	// Options say where the servers are.
	Options redis.UniversalOptions
	// Prefix leads the name of every key, and begins every namespace, that a way makes.
	Prefix string
}

// Client returns a new client of the cell's servers with connections for all callers.
func (c Cell) Client() redis.UniversalClient {
	o := c.Options
	o.PoolSize = max(o.PoolSize, c.Callers+8)
	return redis.NewUniversalClient(&o)
}

func (c Cell) withDefaults() Cell {
	c.Callers, c.Tags = max(c.Callers, 1), max(c.Tags, 1)
	if c.Payload == 0 {
		c.Payload = 300
	}
	return c
}

// Way is one way to do a cell's work.
type Way struct {
	Name string
	// Setup runs once a cell.
	Setup func(ctx context.Context, c Cell) (*Running, error)
}

// Running is a way that has been set up in a cell.
type Running struct {
	// Prepare gets ready for a round of n operations, and removes what the round before has left; its time does not
	// count. Nil: there is nothing to prepare.
	Prepare func(ctx context.Context, n int) error
	// Op does Batch operations: i, i+1 … of the n prepared. It is called by all callers at once, worker is the caller's
	// number from 0. Nil where Round is set.
	Op func(ctx context.Context, worker, i int) error
	// Batch is the operations of one Op. Defaults to 1.
	Batch int
	// Round does all n operations in a manner of its own and returns when they are done, for what is no closed loop of
	// calls.
	Round func(ctx context.Context, n int) error
	// CPU is what the cell's servers have used of their processors so far; see ServerCPU. Nil: it is not measured.
	CPU func(ctx context.Context) (time.Duration, error)
	// Close ends what Setup began. Nil: nothing.
	Close func()
}

// Sample is what one round of one way took.
type Sample struct {
	// Ops is the operations done.
	Ops int `json:"ops"`
	// Took is the time by the wall.
	Took time.Duration `json:"took_ns"`
	// ServerCPU and ClientCPU are processor time, user and system.
	ServerCPU time.Duration `json:"server_cpu_ns"`
	ClientCPU time.Duration `json:"client_cpu_ns"`
	// Allocs and Bytes are what the process allocated.
	Allocs uint64 `json:"allocs"`
	Bytes  uint64 `json:"bytes"`
	// P50 and P99 are of the times of an Op, to 3 %; 0 for a way with Round.
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
}

// Metric is a number of a sample.
type Metric func(Sample) float64

// The metrics: operations a second; microseconds, allocations and bytes an operation; milliseconds of a call.
var (
	Throughput Metric = func(s Sample) float64 { return ratio(float64(s.Ops), s.Took.Seconds()) }
	ServerCPUs Metric = func(s Sample) float64 { return ratio(micros(s.ServerCPU), float64(s.Ops)) }
	ClientCPUs Metric = func(s Sample) float64 { return ratio(micros(s.ClientCPU), float64(s.Ops)) }
	Allocs     Metric = func(s Sample) float64 { return ratio(float64(s.Allocs), float64(s.Ops)) }
	Bytes      Metric = func(s Sample) float64 { return ratio(float64(s.Bytes), float64(s.Ops)) }
	P50        Metric = func(s Sample) float64 { return micros(s.P50) / 1e3 }
	P99        Metric = func(s Sample) float64 { return micros(s.P99) / 1e3 }
)

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// ratio is a/b, and 0 where b is 0: nothing was measured.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
