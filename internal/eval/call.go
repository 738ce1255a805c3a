package eval

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Call is one call of a script, sent until it is answered. The script must tolerate being run twice with the same
// arguments: that is what its tokens, leases and ids are for.
type Call struct {
	Script *Script
	Key    string     // leads to the node
	Argv   []any      // EVALSHA, its hash, the number of keys, the keys, the arguments; nil: its Load makes them
	Ahead  [][]any    // commands that go out in front of the script, in the same pipeline; nobody reads their replies
	Load   Load       // nil: the call shares its script with no other
	Wait   Durability // for which it waits; the same for all calls that share a round trip
	Until  time.Time  // the caller gives up then; zero: when its context ends
	Alone  bool       // it shares a round trip with no other call

	// Failure is the error of the last round trip; nil: it is answered.
	Failure error
	// Unanswered reports that a copy of an earlier request may still arrive.
	Unanswered bool
	// Replicated reports that the effect has reached what Wait asks for.
	Replicated bool
	// Tries counts the round trips.
	Tries uint16
	// Batch is how many calls shared the last script.
	Batch uint16

	shared bool // the last round trip, with other calls
	size   int  // see seal

	// The way to the answer. A caller who leaves the call in flight does not touch these fields again.
	ctx   context.Context
	queue *nodeQueue
	done  chan struct{} // closed when the answer is there
	in    *Call         // the call it travels in: itself, or one that carries the loads of several
	nth   int           // in there
	self  [1]*Call      // the call, as a list

	// The answer, of a call that others travel in, or that travels by itself.
	reply    any
	err      error
	together bool // the round trip or the script is shared
	members  uint16
	reached  bool // what Wait asks for
}

// Load is what a call carries that can share its script with the loads of other calls.
type Load interface {
	// Seal copies what belongs to the caller, who may leave while the call is in flight. It returns how many arguments the
	// load has, and how many bytes.
	Seal() (args, bytes int)
	// Join reports whether another load fits into the same script. It returns the load with which further ones must fit.
	Join(other Load) (Load, bool)
	// Pack returns the script, the arguments of one EVALSHA, and the commands in front of it, that carry the loads of the
	// calls, of which the receiver is the first.
	Pack(calls []*Call) (script *Script, argv []any, ahead [][]any)
	// Again reports that the reply leaves the load, the nth of its script, undone, and that it goes out again at once.
	Again(reply any, nth int) bool
}

// Reply returns the reply of the script, and the position of the call's load in it.
func (c *Call) Reply() (reply any, nth int) { return c.in.reply, c.nth }

// once is a command that go-redis sends once, and with it all of its pipeline: a lost reply must not become a
// second execution that nobody counted. Redirections of a cluster are still followed.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

func (c *Call) command(ctx context.Context) once {
	cmd := once{redis.NewCmd(ctx, c.Argv...)}
	cmd.SetFirstKeyPos(FirstKey)
	return cmd
}

// answer keeps the reply to the call's command.
func (c *Call) answer(cmd once) {
	c.reply, c.err = cmd.Val(), cmd.Err()
	if errors.Is(c.err, redis.Nil) {
		c.err = nil
	}
}

// pack lays the call out for a script of its own, once.
func (c *Call) pack() {
	c.in, c.nth = c, 0
	c.err, c.together, c.members, c.reached = nil, false, 1, false
	if c.Argv == nil {
		c.self[0] = c
		c.Script, c.Argv, c.Ahead = c.Load.Pack(c.self[:])
	}
}

// settle takes what became of the round trip out of the call that this one travelled in.
func (c *Call) settle() {
	in := c.in
	c.Failure, c.shared, c.Replicated, c.Batch = in.err, in.together, in.reached, in.members
}

// argumentWeight is what an argument weighs beside its bytes: it costs the server as much.
const argumentWeight = 60

// seal makes a call independent of its caller, who may leave it in flight and reuse the memory that it was made of, and
// weighs it.
func (c *Call) seal() {
	if c.size == 0 {
		args, bytes := c.Load.Seal()
		c.size = argumentWeight*args + bytes
	}
}

// wait prepares the call for its way through the queue of its node.
func (c *Call) wait(ctx context.Context, l *nodeQueue) {
	c.ctx, c.queue, c.done, c.in = ctx, l, make(chan struct{}), nil
}

// share makes scripts of a batch of calls: loads that fit together share one.
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
