package script

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// call is one EVALSHA on the wire. What travelled in it reads its answer when the exchange is over.
type call struct {
	script *source
	argv   []any
	reply  any
	err    error
	shared bool // the round trip, or the script, with other requests
	parts  uint16

	durability Durability
	replicated bool

	// Of commits:
	shard     Shard
	input     *Input // of all that travel in it
	now       time.Time
	rows      []any // the answers, the size of each before it
	at        int   // the next
	malformed error // there are none
}

// once is a command that go-redis sends once, and with it all of its pipeline: a lost reply must not become a
// second execution that nobody counted. Redirections of a cluster are still followed.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

func (c *call) command(ctx context.Context) once {
	cmd := once{redis.NewCmd(ctx, c.argv...)}
	cmd.SetFirstKeyPos(firstKey)
	return cmd
}

func (c *call) take(cmd once) {
	c.reply, c.err = cmd.Val(), cmd.Err()
	if errors.Is(c.err, redis.Nil) {
		c.err = nil
	}
}

// answer is the answer to the next of the call's commits. A shard of another keyspace gives one for all.
func (c *call) answer() []any {
	if c.rows == nil {
		c.now, c.rows, c.malformed = timed(c.reply)
	}
	if c.at >= len(c.rows) {
		return nil
	}
	size, _ := c.rows[c.at].(int64)
	if size < 1 || int(size) >= len(c.rows)-c.at {
		return nil
	}
	row := c.rows[c.at+1:][:size]
	if c.at > 0 || State(word(row[0])) != Identity {
		c.at += 1 + int(size)
	}
	return row
}

// handOut gives commits their answers.
func handOut(batch []*request) {
	for _, r := range batch {
		if c := r.flight.call; c.err == nil {
			r.flight.answer = c.answer()
		}
	}
}

// direct makes a round trip for one request alone.
func (s *Set) direct(ctx context.Context, reqs []*request) {
	for _, r := range reqs {
		bounded, cancel := within(ctx, r.until)
		r.lay()
		r.flight = flight{call: &call{script: r.script, argv: r.argv, durability: r.durability}}
		s.exchange(bounded, []*call{r.flight.call})
		if r.part.tx != nil {
			handOut([]*request{r})
		}
		r.take()
		cancel()
	}
}

// pipeline makes a round trip for requests of one node that share it with nobody else, and with the tail.
func (s *Set) pipeline(ctx context.Context, reqs []*request, tail ...redis.Cmder) {
	ctx, cancel := within(ctx, reqs[0].until)
	defer cancel()
	for _, r := range reqs {
		r.flight = flight{}
	}
	s.exchange(ctx, share(reqs), tail...)
	handOut(reqs)
	for _, r := range reqs {
		r.take()
	}
}

// take takes the answer out of the call that the request travelled in.
func (r *request) take() {
	c := r.flight.call
	r.err, r.shared, r.replicated, r.batch = c.err, c.shared, c.replicated, max(1, c.parts)
}

// exchange makes one round trip with calls of one script on one node; a second one, where the server had
// forgotten the script. The tail goes out once, behind them, and bears its own errors.
func (s *Set) exchange(ctx context.Context, calls []*call, tail ...redis.Cmder) {
	s.transmit(ctx, calls, tail...)
	var forgotten []*call
	for _, c := range calls {
		if c.err != nil && redis.HasErrorPrefix(c.err, "NOSCRIPT") {
			forgotten = append(forgotten, c)
		}
	}
	if len(forgotten) == 0 {
		return
	}
	if err := s.load(ctx, forgotten[0]); err != nil {
		for _, c := range forgotten {
			c.err = unsentError{err}
		}
		return
	}
	s.transmit(ctx, forgotten)
}

func (s *Set) transmit(ctx context.Context, calls []*call, tail ...redis.Cmder) {
	switch {
	case calls[0].durability.On():
		s.transmitDurably(ctx, calls, tail...)
	case len(calls) == 1 && len(tail) == 0:
		cmd := calls[0].command(ctx)
		_ = s.client.Process(ctx, cmd) // the command bears it
		calls[0].take(cmd)
	default:
		pipe(ctx, s.client, calls, tail...)
		for _, c := range calls {
			if c.err == nil {
				continue
			}
			if redis.HasErrorPrefix(c.err, "MOVED") || redis.HasErrorPrefix(c.err, "ASK") {
				c.err = redirectError{c.err.Error()}
			}
		}
	}
}

// pipe makes the round trip as one pipeline.
func pipe(ctx context.Context, client redis.UniversalClient, calls []*call, tail ...redis.Cmder) {
	p := client.Pipeline()
	cmds := make([]once, len(calls))
	for i, c := range calls {
		cmds[i] = c.command(ctx)
		_ = p.Process(ctx, cmds[i]) // queues it
	}
	_ = p.BatchProcess(ctx, tail...)
	_, _ = p.Exec(ctx) // the commands bear their errors
	for i, c := range calls {
		c.take(cmds[i])
		c.shared = c.shared || len(calls) > 1
	}
}

// redirectError is a redirection that a pipeline did not get through. It is not the server's last word: when the
// node that a pipeline was redirected to does not answer, go-redis leaves the redirection standing.
type redirectError struct{ text string }

func (e redirectError) Error() string { return "redirected: " + e.text }

// load puts a script where the call's first key lives.
func (s *Set) load(ctx context.Context, c *call) error {
	node, err := s.master(ctx, c.argv[firstKey])
	if err != nil {
		return err
	}
	return node.ScriptLoad(ctx, c.script.text).Err()
}

// master is the client of the node where a key lives.
func (s *Set) master(ctx context.Context, key any) (redis.UniversalClient, error) {
	cluster, ok := s.client.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	})
	if !ok {
		return s.client, nil
	}
	name, _ := key.(string)
	return cluster.MasterForKey(ctx, name)
}

// Load puts every script into the server's cache; of a cluster, into that of each node.
func (s *Set) Load(ctx context.Context) error {
	for _, script := range s.all() {
		if err := s.client.ScriptLoad(ctx, script.text).Err(); err != nil {
			return &ServerError{script.name, err}
		}
	}
	return nil
}
