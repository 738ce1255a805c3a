package eval

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Call is one call of a script. The Runner retries it until the server replies. The script must tolerate a second run
// with the same arguments; its tokens, leases and ids serve that purpose.
type Call struct {
	Script *Script
	Key    string     // determines the node
	Argv   []any      // EVALSHA, its hash, the number of keys, the keys, the arguments; nil: Load.Pack creates them
	Ahead  [][]any    // commands before the script, in the same pipeline; their replies are ignored
	Load   Load       // nil: the call does not share its script
	Wait   Durability // the wait after the script; the same for all calls in a round trip
	Until  time.Time  // the caller gives up at this time; zero: when its context ends
	Alone  bool       // the call does not share its round trip

	// Failure is the error of the last round trip, or nil if the server has replied.
	Failure error
	// Unanswered reports whether a copy of an earlier request may still arrive.
	Unanswered bool
	// Replicated reports whether the effect has reached everything that Wait requires.
	Replicated bool
	// Tries is the number of round trips.
	Tries uint16
	// Batch is the number of calls that shared the last script.
	Batch uint16

	shared bool // other calls shared the last round trip
	size   int  // the weight in a flight; see seal

	// The state of the call in flight. A caller that leaves the call in flight does not access these fields again.
	ctx    context.Context
	queue  *nodeQueue
	push   uint64 // the number of the push, which other calls may share
	waiter *waiter
	in     *Call    // the call that carries this one: itself, or one that carries several loads
	nth    int      // position of the load in that call
	self   [1]*Call // the call as a list

	// The reply of a call that carries loads.
	reply    any
	err      error
	together bool // the round trip or the script is shared
	members  uint16
	reached  bool // the effect has reached everything that Wait requires
}

// Load is the part of a call that can share a script with the loads of other calls.
type Load interface {
	// Seal copies data that belongs to the caller, because the caller may return while the call is in flight. It
	// returns the number of arguments of the load, and their size in bytes.
	Seal() (args, bytes int)
	// Join reports whether another load fits into the same script. It returns the load that further loads must fit.
	Join(other Load) (Load, bool)
	// Pack returns the script, the arguments of one EVALSHA for the loads of the calls, and the commands that precede
	// it. The receiver is the load of the first call.
	Pack(calls []*Call) (script *Script, argv []any, ahead [][]any)
	// Again reports whether the script has skipped the load, which is the nth in the reply. If so, the call is sent
	// again at once.
	Again(reply any, nth int) bool
}

// Reply returns the reply of the script and the position of the call's load in it.
func (c *Call) Reply() (reply any, nth int) { return c.in.reply, c.nth }

// once is a command that go-redis does not retry. It does not retry a pipeline that contains one either. A retry after
// a lost reply would be an execution that luatx does not count. Redirections of a cluster are still followed.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

func (c *Call) command(ctx context.Context) once {
	cmd := once{redis.NewCmd(ctx, c.Argv...)}
	cmd.SetFirstKeyPos(FirstKey)
	return cmd
}

// answer stores the reply to the call's command.
func (c *Call) answer(cmd once) {
	c.reply, c.err = cmd.Val(), cmd.Err()
	if errors.Is(c.err, redis.Nil) {
		c.err = nil
	}
}

// pack prepares the call for a separate script. It packs the arguments only once.
func (c *Call) pack() {
	c.in, c.nth = c, 0
	c.err, c.together, c.members, c.reached = nil, false, 1, false
	if c.Argv == nil {
		c.self[0] = c
		c.Script, c.Argv, c.Ahead = c.Load.Pack(c.self[:])
	}
}

// settle copies the outcome of the round trip from the call that carried this one.
func (c *Call) settle() {
	in := c.in
	c.Failure, c.shared, c.Replicated, c.Batch = in.err, in.together, in.reached, in.members
}

// argumentWeight is the weight of an argument in addition to its bytes. An argument needs as much CPU time on the
// server.
const argumentWeight = 60

// seal makes a call independent of its caller, which may leave it in flight and reuse the memory of its arguments. It also
// computes the call's size.
func (c *Call) seal() {
	if c.size == 0 {
		args, bytes := c.Load.Seal()
		c.size = argumentWeight*args + bytes
	}
}

// wait prepares the call for the queue of its node.
func (c *Call) wait(ctx context.Context, l *nodeQueue, w *waiter) {
	c.ctx, c.queue, c.waiter, c.in = ctx, l, w, nil
}

// share combines loads that fit together into scripts of up to maxBatch loads, and returns the scripts of a batch of
// calls. Lua cannot pass the arguments of many more loads to one command.
func share(batch []*Call) []*Call {
	var scripts []*Call
	for i, first := range batch {
		if first.in != nil {
			continue
		}
		first.in = first
		var members []*Call
		load := first.Load
		for _, c := range batch[i+1:] {
			if len(members) == maxBatch {
				break
			}
			if c.in != nil {
				continue
			}
			if joint, fits := load.Join(c.Load); fits {
				if members == nil {
					members = append(make([]*Call, 0, len(batch)-i), first)
				}
				load, c.in = joint, first
				members = append(members, c)
			}
		}
		if members == nil {
			first.pack()
			scripts = append(scripts, first)
			continue
		}
		script := &Call{Wait: first.Wait, together: true, members: uint16(len(members))} //nolint:gosec // maxBatch at most
		for n, c := range members {
			c.in, c.nth = script, n
		}
		script.Script, script.Argv, script.Ahead = first.Load.Pack(members)
		scripts = append(scripts, script)
	}
	return scripts
}
