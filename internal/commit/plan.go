package commit

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
)

const (
	// CompileAfter is the number of transactions of a plan that are sent before it is compiled.
	CompileAfter = 100
	// maxCompiled is the maximum number of compiled plans. A new one replaces the least used one.
	maxCompiled = 64
	// maxPlans is the maximum number of known plans. A service has one for each kind of transaction and number of arguments.
	maxPlans = 512
	// barred is the number of times that a plan must be sent before it is compiled again, after its compiled script
	// failed to load or passed too many transactions to commit.lua.
	barred = 10_000
	// loadTimeout bounds the loading of a compiled script.
	loadTimeout = 10 * time.Second
	// noteEvery is the number of transactions of a plan after which its use is noted for operators.
	noteEvery = 4096
)

// plan is the part that transactions of one kind share.
type plan struct {
	text any // a string, in the format of internal/lua/commit.lua

	seen     atomic.Int64    // number of times the plan was sent; add reduces the weight of older uses
	hits     atomic.Int64    // transactions that the compiled script has decided
	left     atomic.Int64    // transactions that it has passed to commit.lua
	noted    [2]atomic.Int64 // the parts of hits and left that were noted
	settled  atomic.Bool     // it is being compiled, or cannot be
	compiled atomic.Pointer[compiled]
}

// compiled is the compiled script of a plan.
type compiled struct {
	shape

	plan         *plan
	sender       *Sender
	alone, batch *eval.Script // for one transaction, and for several
}

// plans holds the plans of transactions.
type plans struct {
	mu       sync.RWMutex
	known    map[string]*plan
	compiled []*plan
}

// of returns the plan of a commit. If strings is true, the server can restore only strings.
func (p *plans) of(c *Commit, strings bool) *plan {
	var few [96]byte
	b := append(few[:0], byte(c.args>>16), byte(c.args>>8), byte(c.args), c.Input.plan())
	b = binary.BigEndian.AppendUint32(b, uint32(c.Delay.Milliseconds()))
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.Guards)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.Events)))
	flags := byte(0)
	if c.Keep {
		flags |= 1
	}
	if !c.plainEvents() {
		flags |= 2
	}
	if strings {
		flags |= 4
	}
	if c.Position != nil {
		flags |= 8
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.Commands)))
	for i := range c.Commands {
		command := &c.Commands[i]
		b = binary.BigEndian.AppendUint16(append(b, command.Head[0], command.Head[1]-'0'), uint16(command.arguments()))
	}
	size := len(b)
	for i := range c.Commands { // commit.lua does not need the names
		if args := c.Commands[i].Args; len(args) > 0 {
			name, _ := args[0].(string)
			b = append(append(b, name...), ' ')
		}
	}
	if c.staged {
		b = append(b, "~"...) // not compiled
	}
	return p.lookup(b, size)
}

// plan returns the byte for the input in the plan.
func (i *Input) plan() byte {
	if i.Strict && i.Ack != AckNone {
		return byte(i.Ack) | 4
	}
	return byte(i.Ack)
}

// lookup returns the plan for a key. The first size bytes of the key are the plan's text.
func (p *plans) lookup(key []byte, size int) *plan {
	p.mu.RLock()
	found := p.known[string(key)]
	p.mu.RUnlock()
	if found != nil {
		return found
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if found = p.known[string(key)]; found != nil {
		return found
	}
	if len(p.known) >= maxPlans {
		maps.DeleteFunc(p.known, func(_ string, known *plan) bool { return known.compiled.Load() == nil })
	}
	if p.known == nil {
		p.known = make(map[string]*plan)
	}
	found = &plan{text: string(key[:size])}
	p.known[string(key)] = found
	return found
}

// add adds a compiled plan. If there are too many, it drops the least used one. Older uses have less weight.
func (p *plans) add(made *compiled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.compiled) >= maxCompiled {
		least := slices.MinFunc(p.compiled, func(a, b *plan) int { return int(a.seen.Load() - b.seen.Load()) })
		p.drop(least, 0)
		for _, plan := range p.compiled {
			plan.seen.Store(plan.seen.Load() / 2)
		}
	}
	p.compiled = append(p.compiled, made.plan)
	made.plan.compiled.Store(made)
}

// drop removes the compiled script of a plan. More is the additional number of times that the plan must be sent before
// it is compiled again.
func (p *plans) drop(dropped *plan, more int64) {
	p.compiled = slices.DeleteFunc(p.compiled, func(plan *plan) bool { return plan == dropped })
	dropped.compiled.Store(nil)
	dropped.seen.Store(-more)
	for _, counter := range []*atomic.Int64{&dropped.hits, &dropped.left, &dropped.noted[0], &dropped.noted[1]} {
		counter.Store(0)
	}
	dropped.settled.Store(false)
}

// leave counts a transaction that a compiled script has passed to commit.lua. If there are many, leave drops the
// compiled script.
func (p *plans) leave(left *plan) {
	const few = 16
	if n := left.left.Add(1); n < few || n < left.hits.Load()/4 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.compiled, left) {
		left.compiled.Load().note()
		p.drop(left, barred)
	}
}

// hit counts a transaction that the compiled script has decided.
func (k *compiled) hit() {
	if k.plan.hits.Add(1)%noteEvery == 0 {
		k.note()
	}
}

// note reports how often the script was used since the last note to operators.
func (k *compiled) note() {
	since := func(counter, noted *atomic.Int64) int64 {
		for {
			before, now := noted.Load(), counter.Load()
			if noted.CompareAndSwap(before, now) {
				return now - before
			}
		}
	}
	hits, left := since(&k.plan.hits, &k.plan.noted[0]), since(&k.plan.left, &k.plan.noted[1])
	if k.sender.Note != nil {
		plan := shard.Plan{Alone: k.alone.SHA(), Batch: k.batch.SHA(), Does: k.String(), Hits: hits, Left: left}
		k.sender.background.Go(func() { k.sender.Note(plan) })
	}
}

// ready returns the compiled script of a commit's plan, or nil if there is none. It starts compiling a plan that is often sent.
func (s *Sender) ready(c *Commit) *compiled {
	after := s.compileAfter.Load()
	if after == 0 {
		return nil
	}
	p := c.plan
	seen := p.seen.Add(1)
	if made := p.compiled.Load(); made != nil {
		return made
	}
	if seen >= after && p.settled.CompareAndSwap(false, true) {
		if shape, ok := shapeOf(c); ok {
			s.background.Go(func() { s.compile(&compiled{shape: shape, plan: p, sender: s}) })
		}
	}
	return nil
}

// compile loads the compiled script of a plan, which later commits use.
func (s *Sender) compile(made *compiled) {
	text := func(batch bool) string { return s.constants.Substitute(made.shape.compile(batch), made.shape.keys()) }
	made.alone, made.batch = eval.NewScript("commit", text(false)), eval.NewScript("commit", text(true))
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	for _, script := range []*eval.Script{made.alone, made.batch} {
		if err := s.runner.LoadScript(ctx, script); err != nil {
			s.runner.Log().Warn("luatx: compiled script not loaded", "script", made.String(), "error", err)
			made.plan.seen.Store(-barred)
			made.plan.settled.Store(false)
			return
		}
	}
	s.plans.add(made)
	made.note()
}

// Wait returns when no plan is being compiled or noted. The caller must not send anything meanwhile.
func (s *Sender) Wait() { s.background.Wait() }

// CompileAfter sets how many transactions of a plan are sent before it is compiled. If n is 0, no plan is compiled, and no
// compiled script is used.
func (s *Sender) CompileAfter(n int) { s.compileAfter.Store(int64(n)) }

// A Plan describes a compiled plan and its use.
type Plan struct {
	Shape        string // a readable description of its transactions
	Hits, Left   int64  // transactions that its script has decided, and those that it has passed to the general one
	Alone, Batch *eval.Script
}

// Plans returns the compiled plans, the most used first.
func (s *Sender) Plans() []Plan {
	s.plans.mu.RLock()
	defer s.plans.mu.RUnlock()
	var list []Plan
	for _, p := range s.plans.compiled {
		if made := p.compiled.Load(); made != nil {
			list = append(list, Plan{made.String(), p.hits.Load(), p.left.Load(), made.alone, made.batch})
		}
	}
	slices.SortFunc(list, func(a, b Plan) int { return int(b.Hits - a.Hits) })
	return list
}

// ownKeys appends the keys of a shard that the script declares.
func (s shape) ownKeys(argv []any, home shard.Shard) []any {
	own := home.CommitKeys()
	argv = append(argv, own[0], own[1])
	if s.positioned {
		argv = append(argv, home.PositionsKey())
	}
	if s.events > 0 {
		argv = append(argv, own[3], own[4], own[6])
	}
	return argv
}
