package admin

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

	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/repair"
)

const (
	// keptOperations is how many operations are remembered.
	keptOperations = 100
	// discardAtOnce is how many events are discarded in one step.
	discardAtOnce = 500
	// maxFindings is how many findings are told.
	maxFindings = 1000
)

// operationView is an operation as it is at a time.
type operationView struct {
	ID   string `json:"id"`
	Kind string `json:"kind"` // rearm, discard or fix
	Who  string `json:"who"`
	// Why is the filter, and the reason where there is one.
	Why     string                 `json:"why"`
	Begun   time.Time              `json:"begun"`
	Ended   time.Time              `json:"ended,omitzero"`
	Running bool                   `json:"running"`
	Stopped bool                   `json:"stopped"` // by somebody, or with the handler
	Rearm   *outbox.RearmResult    `json:"-"`
	Result  *rearmJSON             `json:"rearm,omitempty"` // is Rearm
	Matched int                    `json:"matched"`
	Done    int                    `json:"done"`
	Skipped map[outbox.Outcome]int `json:"skipped"`
	// Findings are the first of a fix; Matched counts all.
	Findings []repair.Finding `json:"-"`
	Found    []findingJSON    `json:"findings,omitempty"` // are Findings
	Error    string           `json:"error,omitempty"`
}

type rearmJSON struct {
	Operation   string         `json:"operation"` // its id in the audit, once it has ended
	Matched     int            `json:"matched"`
	Rearmed     int            `json:"rearmed"`
	Skipped     map[string]int `json:"skipped"`
	Classes     map[string]int `json:"classes"`
	Canary      canaryJSON     `json:"canary"`
	ParkedAgain int            `json:"parked_again"`
	Stopped     string         `json:"stopped"`
	Class       string         `json:"class"`
}

type canaryJSON struct {
	Sent        int `json:"sent"`
	ParkedAgain int `json:"parked_again"`
	Trying      int `json:"trying"`
}

func newRearm(r outbox.RearmResult) rearmJSON {
	j := rearmJSON{
		r.Operation, r.Matched, r.Rearmed, map[string]int{}, maps.Clone(r.Classes), canaryJSON(r.Canary), r.ParkedAgain, string(r.Stopped), r.Class,
	}
	for outcome, n := range r.Skipped {
		j.Skipped[string(outcome)] = n
	}
	return j
}

// operation is work that goes on behind its request.
type operation struct {
	id     string
	cancel context.CancelFunc

	mu   sync.Mutex
	view operationView
}

// change changes what is seen of it.
func (o *operation) change(how func(*operationView)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	how(&o.view)
}

// see is a copy for whoever asks.
func (o *operation) see() operationView {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.view
	v.Skipped, v.Findings = maps.Clone(v.Skipped), slices.Clone(v.Findings)
	if v.Rearm != nil {
		result := newRearm(*v.Rearm)
		v.Result = &result
	}
	for _, f := range v.Findings {
		v.Found = append(v.Found, newFinding(f))
	}
	return v
}

// operations are those of a handler: a few at a time, until it is closed.
type operations struct {
	ctx    context.Context
	cancel context.CancelFunc
	most   int
	log    *slog.Logger
	group  sync.WaitGroup

	mu      sync.Mutex
	all     []*operation // oldest first
	running int
}

func newOperations(cfg HandlerConfig) *operations {
	ctx, cancel := context.WithCancel(context.Background())
	return &operations{ctx: ctx, cancel: cancel, most: cfg.MaxOperations, log: cfg.Logger}
}

func (os *operations) close() {
	os.mu.Lock()
	os.cancel()
	os.mu.Unlock()
	os.group.Wait()
}

// start begins an operation, unless too many run.
func (os *operations) start(kind string, op *Operator, why string, do func(context.Context, *operation) error) (*operation, error) {
	os.mu.Lock()
	defer os.mu.Unlock()
	if os.ctx.Err() != nil {
		return nil, &problem{Status: http.StatusServiceUnavailable, Detail: "the handler is closed"}
	}
	if os.running == os.most {
		return nil, &problem{Status: http.StatusConflict, Detail: fmt.Sprintf("%d operations run already: wait for one, or stop it", os.most)}
	}
	os.running++
	ctx, cancel := context.WithCancel(os.ctx)
	o := &operation{id: rand.Text()[:16], cancel: cancel}
	o.view = operationView{
		ID: o.id, Kind: kind, Who: op.cfg.Name, Why: why, Begun: time.Now().UTC(), Running: true, Skipped: map[outbox.Outcome]int{},
	}
	os.all = append(os.all[max(0, len(os.all)-keptOperations+1):], o)
	os.group.Go(func() {
		defer cancel()
		os.end(o, do(ctx, o), ctx.Err() != nil)
	})
	return o, nil
}

func (os *operations) end(o *operation, err error, stopped bool) {
	o.change(func(v *operationView) {
		v.Running, v.Ended, v.Stopped = false, time.Now().UTC(), stopped
		if err != nil && !stopped {
			v.Error = err.Error()
		}
	})
	if err != nil && !stopped {
		os.log.LogAttrs(os.ctx, slog.LevelError, "luatx: operation failed", slog.String("operation", o.id), slog.Any("error", err))
	}
	os.mu.Lock()
	defer os.mu.Unlock()
	os.running--
}

func (os *operations) find(id string) *operation {
	os.mu.Lock()
	defer os.mu.Unlock()
	for _, o := range os.all {
		if o.id == id {
			return o
		}
	}
	return nil
}

// get returns an operation as it is now.
func (os *operations) get(id string) (operationView, bool) {
	if o := os.find(id); o != nil {
		return o.see(), true
	}
	return operationView{}, false
}

// list returns all that are remembered, newest first.
func (os *operations) list() []operationView {
	os.mu.Lock()
	all := slices.Clone(os.all)
	os.mu.Unlock()
	views := make([]operationView, len(all))
	for i, o := range all {
		views[len(all)-1-i] = o.see()
	}
	return views
}

// stop ends an operation early. What it has done stays done.
func (os *operations) stop(id string) bool {
	o := os.find(id)
	if o == nil {
		return false
	}
	o.cancel()
	return true
}

// rearm re-arms what a filter means.
func (os *operations) rearm(op *Operator, f outbox.Filter, opts outbox.RearmOptions) (*operation, error) {
	return os.start("rearm", op, f.String(), func(ctx context.Context, o *operation) error {
		see := func(r outbox.RearmResult) {
			o.change(func(v *operationView) { v.Rearm, v.Matched, v.Done, v.Skipped = &r, r.Matched, r.Rearmed, r.Skipped })
		}
		opts.Progress = see
		result, err := op.Outbox().RearmAll(ctx, f, opts)
		see(result)
		return err
	})
}

// discard discards what a filter means, as it is now: what is parked meanwhile is left alone. Zero limit: all.
func (os *operations) discard(op *Operator, f outbox.Filter, reason string, limit int) (*operation, error) {
	return os.start("discard", op, reason+": "+f.String(), func(ctx context.Context, o *operation) error {
		cutoff, err := op.cfg.Client.Time(ctx).Result()
		if err != nil {
			return err
		}
		var batch []outbox.Event
		flush := func() error {
			err := discardBatch(ctx, op, o, reason, batch)
			batch = nil
			return err
		}
		matched := 0
		for e, err := range op.Outbox().Parked(ctx, f) {
			if err != nil && e.ID == "" {
				return errors.Join(err, flush())
			}
			if e.At.After(cutoff) {
				continue
			}
			if len(batch) == discardAtOnce || len(batch) > 0 && batch[0].Slot != e.Slot {
				if err := flush(); err != nil {
					return err
				}
			}
			batch = append(batch, e)
			if matched++; matched == limit {
				break
			}
		}
		return flush()
	})
}

// discardBatch discards events of one slot.
func discardBatch(ctx context.Context, op *Operator, o *operation, reason string, batch []outbox.Event) error {
	if len(batch) == 0 {
		return nil
	}
	ids := make([]string, len(batch))
	for i, e := range batch {
		ids[i] = e.ID
	}
	answers, err := op.Outbox().Discard(ctx, batch[0].Slot, reason, ids...)
	o.change(func(v *operationView) {
		v.Matched += len(batch)
		v.Done += answers.Done()
		for _, a := range answers {
			if a.Outcome != outbox.Done {
				v.Skipped[a.Outcome]++
			}
		}
	})
	return err
}

// fix settles what disagrees in the shards.
func (os *operations) fix(op *Operator, slots ...int) (*operation, error) {
	return os.start("fix", op, "", func(ctx context.Context, o *operation) error {
		var errs []error
		for f, err := range op.Fix(ctx, slots...) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			o.change(func(v *operationView) {
				if v.Matched++; f.Fixed {
					v.Done++
				}
				if len(v.Findings) < maxFindings {
					v.Findings = append(v.Findings, f)
				}
			})
		}
		return errors.Join(errs...)
	})
}
