package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

// lossy makes a client lose replies: the server runs the command, and the caller gets an error of the network.
type lossy struct{ next atomic.Int64 } // number of scripts until a reply is lost; 0: none is

var errReset = errors.New("read: connection reset by peer")

func (l *lossy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "evalsha" && l.next.Load() > 0 && l.next.Add(-1) == 0 {
			cmd.SetErr(errReset)
			return errReset
		}
		return err
	}
}

func (l *lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		scripted := slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == "evalsha" })
		if scripted && l.next.Load() > 0 && l.next.Add(-1) == 0 {
			for _, cmd := range cmds {
				cmd.SetErr(errReset)
			}
			return errReset
		}
		return err
	}
}

// verdict is what the model expects of a delivery.
type verdict string

const (
	acked   verdict = "acked"
	failed  verdict = "failed"
	fenced  verdict = "fenced"
	early   verdict = "early"
	foreign verdict = "epoch"
)

// record is the model of a position.
type record struct {
	offset     int // 0: nothing counts as committed
	generation int
	epoch      string
}

// owner is a tenure in the model.
type owner struct {
	tenure     *message.Tenure
	generation int // 0: not minted
	attempts   map[int]int
}

// conduct is what the handler of a delivery does.
type conduct int

const (
	succeeds conduct = iota
	fails
	failsForGood
	breaks // its commit fails
)

const maxAttempts = 3

// partitionModel is a small model of one partition, beside the real thing.
type partitionModel struct {
	t      *testing.T
	random *rand.Rand
	client redis.UniversalClient
	lossy  *lossy
	tr     *luatx.Transactor
	op     *admin.Operator
	router *message.Router

	epoch      int
	generation int // the last one minted
	owners     []*owner
	records    map[string]*record // by aggregate, each of which has a slot
	applied    map[string][]string
	parked     int
	log        []string

	mu       sync.Mutex
	conducts map[string]conduct // by offset, of the deliveries in flight
}

var aggregates = []string{"a", "b", "c"}

func newPartitionModel(t *testing.T, client redis.UniversalClient, random *rand.Rand, compiled bool, keyspace luatx.Keyspace) *partitionModel {
	m := &partitionModel{
		t: t, random: random, client: client, lossy: &lossy{}, records: map[string]*record{}, applied: map[string][]string{},
		conducts: map[string]conduct{},
	}
	client.AddHook(m.lossy)
	m.tr = rig.NewTransactor(t, client, func(cfg *luatx.Config) {
		cfg.NoCompile, cfg.NoRegistration = !compiled, true
		cfg.Logger = slog.New(slog.DiscardHandler)
		cfg.Keyspace = keyspace.WithPrefix(cfg.Namespace)
	})
	if compiled {
		link.Of(m.tr).Commits.CompileAfter(3)
	}
	var err error
	m.op, err = admin.NewOperator(m.tr, admin.OperatorConfig{Client: client, Name: "alice"})
	redistest.Must(t, err)
	m.router = message.NewRouter(message.PipeConfig{})
	redistest.Must(t, m.router.Use(luatx.Middleware(m.tr), inbox.Position(inbox.PositionConfig{MaxAttempts: maxAttempts})))
	redistest.Must(t, m.router.AddHandler("bill", nil, message.NewHandler(m.handle)))
	m.owners = []*owner{m.newOwner()}
	for _, aggregate := range aggregates {
		redistest.Must(t, client.Set(t.Context(), rig.Key(t, m.tr, aggregate, "text"), "", 0).Err())
	}
	return m
}

func (m *partitionModel) newOwner() *owner {
	return &owner{tenure: &message.Tenure{}, attempts: map[int]int{}}
}

// aggregateOf returns the aggregate of a message.
func aggregateOf(offset int) string { return aggregates[offset*7%11%len(aggregates)] }

func (m *partitionModel) handle(ctx context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
	m.mu.Lock()
	how := m.conducts[msg.ID()]
	m.mu.Unlock()
	pipe, aggregate := luatx.CmdableFromContext(ctx, m.client), msg.Subject()
	errs := []error{luatx.Queued(pipe.HIncrBy(ctx, rig.Key(m.t, m.tr, aggregate, "sums"), "n", 1))}
	if how == breaks {
		errs = append(errs, luatx.Queued(pipe.HSet(ctx, rig.Key(m.t, m.tr, aggregate, "text"), "f", "v")))
	} else {
		errs = append(errs, luatx.Queued(pipe.IncrBy(ctx, rig.Key(m.t, m.tr, aggregate, "n"), 1)))
	}
	errs = append(errs, luatx.Queued(pipe.Append(ctx, rig.Key(m.t, m.tr, aggregate, "log"), msg.ID()+" ")))
	switch how {
	case fails:
		errs = append(errs, errHandler)
	case failsForGood:
		errs = append(errs, message.Permanent(errHandler))
	}
	return nil, errors.Join(errs...)
}

// slotOf names what shares a position.
func (m *partitionModel) slotOf(aggregate string) string {
	tag, err := m.tr.Keyspace().Tag(aggregate)
	redistest.Must(m.t, err)
	return strconv.Itoa(slot.OfTag(tag))
}

func (m *partitionModel) generationOf(o *owner) int {
	if o.generation == 0 {
		m.generation++
		o.generation = m.generation
	}
	return o.generation
}

// commit is the model of a commit's decision; if it is acked, the second result says whether it took effect.
func (m *partitionModel) commit(o *owner, offset, after int, epoch string) (verdict, bool) {
	r := m.records[m.slotOf(aggregateOf(offset))]
	switch {
	case r == nil && after > 0:
		return early, false
	case r == nil:
	case r.offset > 0 && r.epoch == epoch && offset <= r.offset:
		return acked, false
	case o.generation < r.generation:
		return fenced, false
	case r.offset > 0 && r.epoch != epoch:
		return foreign, false
	case r.offset < after:
		return early, false
	}
	return acked, true
}

func (m *partitionModel) move(o *owner, offset int, epoch string) {
	m.records[m.slotOf(aggregateOf(offset))] = &record{offset, o.generation, epoch}
}

// delivery is one message that is given to the router.
type delivery struct {
	offset, after int
	how           conduct
}

// expect runs the model on deliveries that commit together.
func (m *partitionModel) expect(o *owner, run []delivery, epoch string) []verdict {
	want := make([]verdict, len(run))
	var again []int // parked by a second commit
	for i, d := range run {
		m.generationOf(o)
		before, fresh := m.commit(o, d.offset, 0, epoch) // what a failed handler looks up
		parks := d.how == failsForGood
		if d.how == fails || d.how == failsForGood {
			if before == acked && !fresh {
				want[i] = acked
				continue
			}
			o.attempts[d.offset]++
			if parks = parks || o.attempts[d.offset] >= maxAttempts; !parks {
				want[i] = failed
				continue
			}
		}
		want[i], fresh = m.commit(o, d.offset, d.after, epoch)
		switch {
		case want[i] != acked:
			if parks { // the error of the handler and that of the commit
				want[i] = cond(want[i] == fenced, fenced, failed)
			}
		case !fresh:
			delete(o.attempts, d.offset)
		case d.how == breaks:
			want[i] = failed
			if o.attempts[d.offset]++; o.attempts[d.offset] >= maxAttempts {
				again = append(again, i)
			}
		default:
			delete(o.attempts, d.offset)
			m.move(o, d.offset, epoch)
			if parks {
				m.parked++
			} else {
				aggregate := aggregateOf(d.offset)
				m.applied[aggregate] = append(m.applied[aggregate], strconv.Itoa(d.offset))
			}
		}
	}
	for _, i := range again {
		var fresh bool
		if want[i], fresh = m.commit(o, run[i].offset, run[i].after, epoch); want[i] == acked && fresh {
			delete(o.attempts, run[i].offset)
			m.move(o, run[i].offset, epoch)
			m.parked++
		} else if want[i] == early {
			want[i] = failed
		}
	}
	return want
}

func cond[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

// deliver gives deliveries to the router, at once if there are several, and compares what becomes of them with the model.
func (m *partitionModel) deliver(o *owner, run []delivery, epoch int) {
	m.t.Helper()
	name := strconv.Itoa(epoch)
	msgs := make([]*message.Message, len(run))
	for i, d := range run {
		p := message.Position{Source: "orders", Partition: "0", Offset: fmt.Sprintf("%06d", d.offset), Epoch: name, Tenure: o.tenure}
		if d.after > 0 {
			p.After = fmt.Sprintf("%06d", d.after)
		}
		attrs := message.Attributes{"id": strconv.Itoa(d.offset), "source": "/shop", "type": "order", "subject": aggregateOf(d.offset)}
		msgs[i] = message.New([]byte("{}"), attrs, message.NewAckingFrom(message.AckingConfig{Position: p}))
		m.mu.Lock()
		m.conducts[msgs[i].ID()] = d.how
		m.mu.Unlock()
	}
	got := m.process(msgs)
	want := m.expect(o, run, name)
	m.log = append(m.log, fmt.Sprintf("generation %d, epoch %s: %v -> %v", o.generation, name, run, got))
	if !slices.Equal(got, want) {
		m.t.Fatalf("the outcomes are %v, the model has %v, after\n%s", got, want, strings.Join(m.log, "\n"))
	}
}

func (m *partitionModel) process(msgs []*message.Message) []verdict {
	ctx := redistest.Soon(m.t)
	got := make([]verdict, len(msgs))
	if len(msgs) == 1 {
		_, err := m.router.Process(ctx, msgs[0])
		return []verdict{verdictOf(err)}
	}
	g := link.Of(m.tr).Gather(ctx, len(msgs), 0, nil)
	var handlers sync.WaitGroup
	for i, msg := range msgs {
		handlers.Go(func() {
			defer g.Leave()
			_, err := m.router.Process(g.Context(ctx), msg)
			got[i] = verdictOf(err)
		})
	}
	handlers.Wait()
	return got
}

func verdictOf(err error) verdict {
	var isEarly *message.EarlyError
	var isForeign *message.EpochError
	var command *luatx.CommandError
	switch {
	case err == nil:
		return acked
	case errors.Is(err, luatx.ErrFenced):
		return fenced
	case errors.Is(err, errHandler), errors.As(err, &command):
		return failed
	case errors.As(err, &isEarly):
		return early
	case errors.As(err, &isForeign):
		return foreign
	}
	return verdict(err.Error())
}

// rewind sets the positions back, and compares what it reports.
func (m *partitionModel) rewind(to int) {
	m.t.Helper()
	r := admin.Rewind{Scope: m.tr.Config().Namespace + "/bill", Source: "orders", Partition: "0", Reason: "test"}
	if to > 0 {
		r.Offset = fmt.Sprintf("%06d", to)
	}
	changed, err := m.op.Rewind(m.t.Context(), r)
	if err != nil || len(changed) != len(m.records) {
		m.t.Fatalf("rewind to %d changed %+v, the model has %d positions; %v", to, changed, len(m.records), err)
	}
	m.generation++
	m.log = append(m.log, fmt.Sprintf("rewind to %d", to))
	for _, r := range m.records {
		r.generation = m.generation
		if to == 0 {
			r.offset, r.epoch = 0, ""
		} else {
			r.offset = min(r.offset, to)
		}
	}
}

// step does something random.
func (m *partitionModel) step() {
	r := m.random
	o := m.owners[len(m.owners)-1]
	if r.IntN(6) == 0 {
		o = m.owners[r.IntN(len(m.owners))] // perhaps a former one
	}
	if r.IntN(10) == 0 {
		m.lossy.next.Store(1 + r.Int64N(3))
	}
	highest := 0
	for _, rec := range m.records {
		highest = max(highest, rec.offset)
	}
	switch r.IntN(20) {
	case 0:
		m.owners = append(m.owners, m.newOwner())
	case 1:
		m.rewind(cond(r.IntN(3) == 0, 0, r.IntN(highest+2)))
		m.owners = append(m.owners, m.newOwner())
	case 2:
		m.epoch++
		m.deliver(o, []delivery{{offset: 1 + r.IntN(3)}}, m.epoch)
		if r.IntN(2) == 0 {
			m.epoch--
			break
		}
		m.rewind(0)
		m.owners = append(m.owners, m.newOwner())
	default:
		first := max(1, highest+1-r.IntN(4)*r.IntN(2))
		run := make([]delivery, 1+r.IntN(5)*r.IntN(2))
		last := map[string]int{}
		for i := range run {
			offset := first + i
			key := m.slotOf(aggregateOf(offset))
			run[i] = delivery{offset: offset, after: last[key]}
			last[key] = offset
			if r.IntN(5) == 0 {
				run[i].how = conduct(1 + r.IntN(3))
			}
		}
		m.deliver(o, run, m.epoch)
	}
}

// compare compares what the handlers have written with the model.
func (m *partitionModel) compare() {
	m.t.Helper()
	m.lossy.next.Store(0)
	letters := int64(0)
	for s := range m.records {
		n, _ := strconv.Atoi(s)
		letters += m.client.XLen(m.t.Context(), m.tr.Keyspace().TagKey(slot.Text(n), "orders", "dead")).Val()
	}
	if int(letters) != m.parked {
		m.t.Errorf("%d dead letters, the model has %d", letters, m.parked)
	}
	for _, aggregate := range aggregates {
		log := m.client.Get(m.t.Context(), rig.Key(m.t, m.tr, aggregate, "log")).Val()
		sum := m.client.HGet(m.t.Context(), rig.Key(m.t, m.tr, aggregate, "sums"), "n").Val()
		if want := m.applied[aggregate]; !slices.Equal(strings.Fields(log), want) || sum != strconv.Itoa(len(want)) && len(want) > 0 {
			m.t.Errorf("aggregate %s has %s (%s), the model has %v, after\n%s", aggregate, log, sum, want, strings.Join(m.log, "\n"))
		}
	}
}

// TestPositionsDecideAsTheModel delivers, delivers again, fails, parks, loses replies, changes owners and rewinds at random.
func TestPositionsDecideAsTheModel(t *testing.T) {
	t.Parallel()
	seed, runs, steps := uint64(1), 2, 60
	if os.Getenv("LUATX_VERIFY") != "" {
		seed, runs, steps = rand.Uint64(), 8, 200
	}
	if again, err := strconv.ParseUint(os.Getenv("LUATX_SEED"), 10, 64); err == nil {
		seed = again
	}
	t.Logf("LUATX_SEED=%d", seed)
	for name, keyspace := range map[string]luatx.Keyspace{"own tags": luatx.OwnTags(), "one partition": luatx.Partitions(1)} {
		for _, compiled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, compiled %t", name, compiled), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed, uint64(len(name))))
				for run := range runs {
					_, client := redistest.Mini(t)
					if run%2 == 0 {
						client = redistest.Shared(t).Client(t)
					}
					m := newPartitionModel(t, client, random, compiled, keyspace)
					for range steps {
						m.step()
					}
					m.compare()
				}
			})
		}
	}
}
