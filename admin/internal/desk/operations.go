package desk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/repair"
)

const (
	// KeptOperations is the number of operations that are stored.
	KeptOperations = 100
	// MaxFindings is the number of findings that an operation stores.
	MaxFindings = 1000
)

// Operation is a snapshot of work that continues after its request.
type Operation struct {
	ID   string
	Kind string // rearm, fix, or one of outbox.Acts
	Who  string
	// Why is the filter, and the reason if there is one.
	Why     string
	Begun   time.Time
	Ended   time.Time // zero while it runs
	Running bool
	Stopped bool // by an operator, or with the handler
	// Rearm is the result of a re-arming so far.
	Rearm *outbox.RearmResult
	// Dead is the result of an operation on dead letters so far.
	Dead    *admin.DeadLetterResult
	Matched int
	Done    int
	Skipped map[outbox.Outcome]int
	// Findings are the first findings of a fix. Matched counts all.
	Findings []repair.Finding
	Error    string
}

// job is a running or ended operation.
type job struct {
	id     string
	cancel context.CancelFunc

	mu   sync.Mutex
	view Operation
}

// change edits the visible state.
func (o *job) change(how func(*Operation)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	how(&o.view)
}

// see returns a copy of the state.
func (o *job) see() Operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.view
	v.Skipped, v.Findings = maps.Clone(v.Skipped), slices.Clone(v.Findings)
	return v
}

// Operations holds the operations of a handler. It runs a few at a time, until it is closed.
type Operations struct {
	ctx    context.Context
	cancel context.CancelFunc
	most   int
	log    *slog.Logger
	group  sync.WaitGroup

	mu      sync.Mutex
	all     []*job // oldest first
	running int
}

func newOperations(cfg Config) *Operations {
	ctx, cancel := context.WithCancel(context.Background())
	return &Operations{ctx: ctx, cancel: cancel, most: cfg.MaxOperations, log: cfg.Logger}
}

func (os *Operations) close() {
	os.mu.Lock()
	os.cancel()
	os.mu.Unlock()
	os.group.Wait()
}

// start begins an operation, unless too many run.
func (os *Operations) start(kind string, op *admin.Operator, why string, do func(context.Context, *job) error) (Operation, error) {
	os.mu.Lock()
	defer os.mu.Unlock()
	if os.ctx.Err() != nil {
		return Operation{}, &guard.Problem{Status: http.StatusServiceUnavailable, Detail: "the handler is closed"}
	}
	if os.running == os.most {
		return Operation{}, &guard.Problem{Status: http.StatusConflict, Detail: fmt.Sprintf("%d operations are running already; wait for one to end, or stop it", os.most)}
	}
	os.running++
	ctx, cancel := context.WithCancel(os.ctx)
	o := &job{id: rand.Text()[:16], cancel: cancel}
	o.view = Operation{
		ID: o.id, Kind: kind, Who: parts.Of(op).Name, Why: why, Begun: time.Now().UTC(), Running: true, Skipped: map[outbox.Outcome]int{},
	}
	os.forget()
	os.all = append(os.all, o)
	os.group.Go(func() {
		defer cancel()
		os.end(o, do(ctx, o), ctx.Err())
	})
	return o.see(), nil
}

// forget removes the oldest operation that has ended if there is no room for another one. Running operations stay, because somebody may
// stop them.
func (os *Operations) forget() {
	if len(os.all) < KeptOperations {
		return
	}
	if i := slices.IndexFunc(os.all, func(o *job) bool { return !o.see().Running }); i >= 0 {
		os.all = slices.Delete(os.all, i, i+1)
	}
}

// end records the end of an operation. It was stopped if its context has ended before all of its work was done.
func (os *Operations) end(o *job, err, ended error) {
	os.mu.Lock()
	os.running-- // before it shows as ended, so that another one can begin then
	os.mu.Unlock()
	stopped := err != nil && ended != nil
	o.change(func(v *Operation) {
		v.Running, v.Ended, v.Stopped = false, time.Now().UTC(), stopped
		if err != nil && !stopped {
			v.Error = err.Error()
		}
	})
	if err != nil && !stopped {
		os.log.LogAttrs(os.ctx, slog.LevelError, "luatx: operation failed", slog.String("operation", o.id), slog.Any("error", err))
	}
}

func (os *Operations) find(id string) *job {
	os.mu.Lock()
	defer os.mu.Unlock()
	for _, o := range os.all {
		if o.id == id {
			return o
		}
	}
	return nil
}

// Get returns an operation as it is now.
func (os *Operations) Get(id string) (Operation, bool) {
	if o := os.find(id); o != nil {
		return o.see(), true
	}
	return Operation{}, false
}

// List returns the stored operations, newest first.
func (os *Operations) List() []Operation {
	os.mu.Lock()
	all := slices.Clone(os.all)
	os.mu.Unlock()
	views := make([]Operation, len(all))
	for i, o := range all {
		views[len(all)-1-i] = o.see()
	}
	return views
}

// stop ends an operation early. Completed steps stay.
func (os *Operations) stop(id string) bool {
	o := os.find(id)
	if o == nil {
		return false
	}
	o.cancel()
	return true
}

// Rearm re-arms the events that match a filter.
func (os *Operations) Rearm(op *admin.Operator, f outbox.Filter, opts outbox.RearmOptions) (Operation, error) {
	return os.start("rearm", op, f.String(), func(ctx context.Context, o *job) error {
		see := func(r outbox.RearmResult) {
			o.change(func(v *Operation) { v.Rearm, v.Matched, v.Done, v.Skipped = &r, r.Matched, r.Rearmed, r.Skipped })
		}
		opts.Progress = see
		result, err := op.Outbox().RearmAll(ctx, f, opts)
		see(result)
		return err
	})
}

// Discard discards parked events. It skips events that are parked after d.Before or, if that is zero, after the start.
func (os *Operations) Discard(op *admin.Operator, d acts.Discarding) (Operation, error) {
	return os.start("discard", op, d.Reason+": "+d.Filter.String(), func(ctx context.Context, o *job) (err error) {
		if d.Before.IsZero() {
			if d.Before, err = acts.Cutoff(ctx, parts.Of(op).Client); err != nil {
				return err
			}
		}
		d.Step = func(batch []outbox.Event, answers outbox.Answers) {
			o.change(func(v *Operation) {
				v.Matched += len(batch)
				v.Done += answers.Done()
				for _, a := range answers {
					if a.Outcome != outbox.Done {
						v.Skipped[a.Outcome]++
					}
				}
			})
		}
		return d.Run(ctx, op.Outbox())
	})
}

// Change changes the events of a state that match a filter, at most limit unless it is zero.
func (os *Operations) Change(op *admin.Operator, state outbox.State, f outbox.Filter, c outbox.Change, limit int) (Operation, error) {
	return os.start(string(c.Act), op, c.Reason+": "+string(state)+" "+f.String(), func(ctx context.Context, o *job) error {
		see := func(r outbox.ChangeResult) {
			o.change(func(v *Operation) { v.Matched, v.Done, v.Skipped = r.Matched, r.Done, maps.Clone(r.Skipped) })
		}
		result, err := op.Outbox().ChangeAll(ctx, state, f, c, outbox.ChangeOptions{Limit: limit, Progress: see})
		see(result)
		return err
	})
}

// Fix repairs inconsistencies of the shards.
func (os *Operations) Fix(op *admin.Operator, slots ...int) (Operation, error) {
	return os.start("fix", op, "", func(ctx context.Context, o *job) error {
		var errs []error
		for f, err := range op.Fix(ctx, slots...) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			o.change(func(v *Operation) {
				if v.Matched++; f.Fixed {
					v.Done++
				}
				if len(v.Findings) < MaxFindings {
					v.Findings = append(v.Findings, f)
				}
			})
		}
		return errors.Join(errs...)
	})
}
