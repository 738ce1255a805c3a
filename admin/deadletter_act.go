package admin

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/outbox"
)

// DeadLetterOptions configure Retry and Discard. The zero value acts on all selected dead letters at once.
type DeadLetterOptions struct {
	// Limit is the most dead letters to act on. Defaults to 0, for all.
	Limit int
	// DryRun counts the selected dead letters, changes nothing, and needs no reason.
	DryRun bool
	// Before leaves out entries that became dead letters after this time of the server's clock. Defaults to the zero time: those that
	// become dead letters after the call has begun are left out.
	Before time.Time
	// Canary is how many dead letters Retry puts back first, at most 1,000. The others follow when the group has acknowledged
	// these. Defaults to 0, for none.
	Canary int
	// CanaryWait is how long Retry waits for that. Defaults to 30 seconds.
	CanaryWait time.Duration
	// Progress is called with the result so far, in the goroutine of the caller. Defaults to nil.
	Progress func(DeadLetterResult)
}

// Validate returns an error for options that Retry and Discard reject.
func (o DeadLetterOptions) Validate() error {
	switch {
	case o.Limit < 0 || o.Canary < 0 || o.CanaryWait < 0:
		return fmt.Errorf("admin: DeadLetterOptions.Limit %d, Canary %d or CanaryWait %v is negative; use 0 for the default, or more", o.Limit, o.Canary, o.CanaryWait)
	case o.Canary > maxCanary:
		return fmt.Errorf("admin: DeadLetterOptions.Canary is %d; use at most %d", o.Canary, maxCanary)
	}
	return nil
}

// maxCanary bounds the number of dead letters that a canary checks at once.
const maxCanary = 1000

// DeadLetterResult is what Retry or Discard has done.
type DeadLetterResult struct {
	// Operation is its id in the audit. A dry run has none.
	Operation string
	// Matched is the number of selected dead letters. Done is the number of those that were put back or discarded.
	Matched, Done int
	// Skipped counts the others by their state: outbox.Unknown if somebody else acted on them first, outbox.WrongState if no stream of
	// the dead-letter stream's slot is known to be theirs.
	Skipped map[outbox.Outcome]int
	// Groups counts the selected dead letters by the group that gave them up.
	Groups map[string]int
	// Canary is the fate of those that went first.
	Canary DeadLetterCanary
	// Stopped reports that Retry ended after the canary.
	Stopped bool
}

// DeadLetterCanary counts the dead letters that Retry has put back first. Handled ones were acknowledged, DeadAgain ones are dead
// letters again, and of Trying ones neither was known in time.
type DeadLetterCanary struct{ Handled, DeadAgain, Trying int }

// Retry puts dead letters back at the end of the streams that they came from, those of a partition into that partition. The same
// step removes each from the dead letters, so that concurrent calls put it back once. Every group of the stream reads the new entry.
// A message keeps its id.
//
// Retry skips entries that become dead letters while it runs. The audit records the act retry with the reason. If Retry returns an
// error, the result counts the dead letters that were put back before.
func (d *DeadLetters) Retry(ctx context.Context, f DeadLetterFilter, reason string, opts DeadLetterOptions) (DeadLetterResult, error) {
	return d.act(ctx, "retry", f, reason, opts)
}

// Discard deletes dead letters like Retry puts them back. The audit records the act discard with the reason.
func (d *DeadLetters) Discard(ctx context.Context, f DeadLetterFilter, reason string, opts DeadLetterOptions) (DeadLetterResult, error) {
	opts.Canary = 0
	return d.act(ctx, "discard", f, reason, opts)
}

// checkReason returns an error for a reason that the audit cannot record.
func checkReason(reason string) error {
	if reason == "" || len(reason) > parts.MaxReason {
		return fmt.Errorf("admin: the reason has %d bytes; set a reason of 1 to %d bytes for the audit", len(reason), parts.MaxReason)
	}
	return nil
}

// deadAct is a running Retry or Discard.
type deadAct struct {
	*DeadLetters

	what, why string
	opts      DeadLetterOptions
	result    DeadLetterResult
	steps     map[string]*deadStep // by dead-letter stream
	copied    map[string]bool
	next      func() (DeadLetter, error, bool)
	held      *DeadLetter // was read, and is of the next batch
}

func (d *DeadLetters) act(ctx context.Context, what string, f DeadLetterFilter, reason string, opts DeadLetterOptions) (DeadLetterResult, error) {
	err := cmp.Or(opts.Validate(), f.Validate())
	if err == nil && !opts.DryRun {
		err = checkReason(reason)
	}
	if err != nil {
		return DeadLetterResult{}, err
	}
	sources, err := d.sources(ctx)
	if err != nil {
		return DeadLetterResult{}, err
	}
	if !opts.Before.IsZero() {
		endAt(sources, opts.Before)
	}
	why := reason + ": " + f.String()
	a := deadAct{DeadLetters: d, what: what, why: strings.ToValidUTF8(why[:min(len(why), parts.MaxReason)], ""), opts: opts, steps: map[string]*deadStep{}, copied: map[string]bool{}}
	a.result = DeadLetterResult{Skipped: map[outbox.Outcome]int{}, Groups: map[string]int{}}
	if !opts.DryRun {
		a.result.Operation = newOperation()
	}
	var stop func()
	a.next, stop = iter.Pull2(func(yield func(DeadLetter, error) bool) { d.list(ctx, sources, f, true, yield) })
	defer stop()
	err = a.run(ctx, sources)
	return a.result, err
}

// endAt leaves out entries that were added to the sources after a time.
func endAt(sources []source, at time.Time) {
	end := group.Before(fmt.Sprintf("%d-0", at.UnixMilli()+1))
	for i := range sources {
		if group.Compare(sources[i].last, end) > 0 {
			sources[i].last = end
		}
	}
}

func (a *deadAct) run(ctx context.Context, sources []source) error {
	if a.opts.Canary > 0 && !a.opts.DryRun {
		c := newCanary(a.operator.core.Client, sources)
		for len(c.entries) < a.opts.Canary { // those that are skipped are no canary
			batch, err := a.some(ctx, a.opts.Canary-len(c.entries), c.add)
			if err != nil {
				return err
			}
			if batch == 0 {
				break
			}
		}
		err := a.watch(ctx, c)
		if err != nil || a.result.Stopped {
			return err
		}
	}
	for {
		n, err := a.some(ctx, maxIDs, func(DeadLetter, string) {})
		if err != nil || n == 0 {
			return err
		}
	}
}

// some acts on up to n dead letters of one place. It calls done for each that was put back, with the id of the new entry if that is
// known, and returns how many it has selected, including those that were skipped.
func (a *deadAct) some(ctx context.Context, n int, done func(l DeadLetter, entry string)) (int, error) {
	batch, err := a.batch(min(n, maxIDs))
	if err != nil || len(batch) == 0 {
		return 0, err
	}
	a.result.Matched += len(batch)
	for _, l := range batch {
		a.result.Groups[l.Group]++
	}
	if !a.opts.DryRun {
		err = a.step(ctx, batch, done)
	}
	a.report()
	return len(batch), err
}

// report calls Progress with the result so far.
func (a *deadAct) report() {
	if a.opts.Progress == nil {
		return
	}
	now := a.result
	now.Skipped, now.Groups = maps.Clone(now.Skipped), maps.Clone(now.Groups)
	a.opts.Progress(now)
}

// batch returns up to n dead letters of one place, within the limit.
func (a *deadAct) batch(n int) ([]DeadLetter, error) {
	if a.opts.Limit > 0 {
		n = min(n, a.opts.Limit-a.result.Matched)
	}
	var batch []DeadLetter
	for len(batch) < n {
		l, err, more := a.read()
		switch {
		case !more:
			return batch, nil
		case err != nil && l.ID == "":
			return nil, err
		case err != nil: // not a dead letter
			continue
		case len(batch) > 0 && (l.source.key != batch[0].source.key || l.home() != batch[0].home()):
			a.held = &l
			return batch, nil
		}
		batch = append(batch, l)
	}
	return batch, nil
}

// read returns the next dead letter as the iterator does. The bool is false at the end.
func (a *deadAct) read() (DeadLetter, error, bool) { //nolint:revive // the order of iter.Pull2
	if l := a.held; l != nil {
		a.held = nil
		return *l, nil, true
	}
	return a.next()
}

// home returns the stream that a dead letter goes back to, or "" if none is known.
func (l DeadLetter) home() string {
	switch {
	case l.source.stream != "":
		return l.source.stream // the script rejects dead letters of another stream
	case l.Stream != "" && slot.Of(l.Stream) == slot.Of(l.source.key):
		return l.Stream
	}
	return ""
}

// step acts on dead letters of one place.
func (a *deadAct) step(ctx context.Context, batch []DeadLetter, done func(DeadLetter, string)) error {
	key, to := batch[0].source.key, batch[0].home()
	if a.what != "discard" && to == "" {
		a.result.Skipped[outbox.WrongState] += len(batch)
		return nil
	}
	s := a.steps[key]
	if s == nil {
		s, a.copied[key] = a.operator.deadStep(a.result.Operation, key, a.why)
		a.steps[key] = s
	}
	ids := make([]string, len(batch))
	for i, l := range batch {
		ids[i] = l.plainID()
	}
	letters, entries, err := s.run(ctx, key, cmp.Or(to, key), a.what, ids)
	var changed []string
	for i, letter := range letters {
		outcome := outcomes[letter]
		if outcome != outbox.Done {
			a.result.Skipped[outcome]++
			continue
		}
		changed = append(changed, batch[i].ID)
		done(batch[i], entries[i])
	}
	a.result.Done += len(changed)
	if len(changed) > 0 && a.copied[key] {
		if failed := a.operator.copyRecord(ctx, s.act, a.what, changed); err == nil {
			err = failed
		}
	}
	return a.failed(a.what, err)
}
