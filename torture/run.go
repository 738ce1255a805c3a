package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/repair"
	"github.com/luatx/luatx/torture/internal/crew"
	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/nemesis"
	"github.com/luatx/luatx/torture/internal/pulse"
	"github.com/luatx/luatx/torture/internal/report"
	"github.com/luatx/luatx/torture/internal/site"
	"github.com/luatx/luatx/torture/internal/skew"
	"github.com/luatx/luatx/torture/internal/verdict"
	"github.com/luatx/luatx/torture/internal/work"
)

const (
	tickEvery = time.Second
	// drainWithin is the time after the last fault in which all work must be done.
	drainWithin = 30 * time.Second
	stopWithin  = 12 * time.Second
)

// run is one run of the program.
type run struct {
	options
	site     *site.Site
	client   redis.UniversalClient // bypasses the proxies
	tr       *luatx.Transactor
	branches []ground.Branch
	crew     *crew.Crew
	pulse    *pulse.Pulse
	nemeses  *nemesis.Nemeses
	checks   verdict.Checks
	samples  []verdict.Sample
	log      io.Writer
	dir      string // for histories and the processes' log
	unfit    []string

	began, ended time.Time // ended is the end of the last fault
	drained      time.Duration
	losses       verdict.Losses
	story        *verdict.Story
	world        *verdict.World
}

// torture runs the program once. It returns the report, or an error if there is none.
func torture(ctx context.Context, o options, log io.Writer) (shown *report.Report, err error) {
	logging.Disable() // servers are down on purpose
	r := &run{options: o, log: log}
	if r.dir, err = os.MkdirTemp(o.Dir, "luatx-torture-"); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil && shown.OK && !o.Keep { // keep the files of a failed run
			err = os.RemoveAll(r.dir)
		}
	}()
	fmt.Fprintf(log, "histories and logs are in %s\n", r.dir)
	if r.site, err = site.Open(ctx, site.Config{Cluster: o.Topology == clusterTopology, Wait: o.Wait, Disk: r.disk()}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.site.Close()) }()
	if err = r.open(); err != nil {
		return nil, err
	}
	defer func() { _ = r.client.Close() }()
	if err = r.staff(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.crew.Stop(0)) }()
	r.fight(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !r.FailFast || r.checks.OK() {
		r.drain(ctx)
	}
	if err := r.crew.Stop(stopWithin); err != nil {
		r.checks.Hold(verdict.ProcessesLast, false, "when stopped: %v", err)
	}
	if err = r.judge(ctx); err != nil {
		return nil, err
	}
	return r.report(), nil
}

// disk returns the directory for the server's own file system. It returns "" if there is none, and records the reason.
func (r *run) disk() string {
	if r.Topology == clusterTopology || r.NoDisk {
		return ""
	}
	if why := site.CanMount(); why != "" {
		r.unfit = append(r.unfit, "full-disk: "+why)
		return ""
	}
	return r.dir
}

func (r *run) open() (err error) {
	if r.branches, err = r.site.Plan.Branches(); err != nil {
		return err
	}
	past := r.site.Plan.Past()
	r.client = past.Connect()
	cfg := past.Transactor(slog.New(slog.DiscardHandler))
	cfg.Durability = luatx.Durability{}
	r.tr, err = luatx.New(r.client, cfg)
	return err
}

// staff starts the processes.
func (r *run) staff(ctx context.Context) error {
	skewed, err := r.skewed(ctx)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.dir, "log"))
	if err != nil {
		return err
	}
	var tasks []work.Task
	for role, n := range map[string]int{work.Worker: r.Workers, work.Relay: r.Relays} {
		for i := range n {
			tasks = append(tasks, work.Task{
				Plan: r.site.Plan, Role: role, Number: i, Seed: r.Seed + uint64(len(tasks)), Dir: r.dir, //nolint:gosec // an index
				Rate: r.Rate / float64(r.Workers),
			})
		}
	}
	r.began = time.Now()
	r.pulse = pulse.New(r.began, len(r.branches))
	r.crew, err = crew.Start(crew.Config{Program: program, Args: []string{memberCommand}, Skewed: skewed, Log: log, Noted: r.pulse.Add}, tasks)
	return err
}

// skewed builds the program with a wrong clock, unless that is disabled.
func (r *run) skewed(ctx context.Context) (string, error) {
	if r.NoClock {
		r.unfit = append(r.unfit, "clock: disabled by --no-clock")
		return "", nil
	}
	fmt.Fprintln(r.log, "building the program with a wrong clock")
	program, err := skew.Build(ctx, r.dir)
	if err != nil {
		r.unfit = append(r.unfit, "clock: "+err.Error())
		return "", ctx.Err()
	}
	return program, nil
}

// fight runs the nemeses for the duration of the run.
func (r *run) fight(ctx context.Context) {
	r.nemeses = nemesis.New(nemesis.Config{
		Site: r.site, Crew: r.crew, Pulse: r.pulse, Branches: r.branches, Seed: r.Seed, Only: r.Nemeses,
		Client: r.client, Transactor: r.tr, Log: r.log,
	})
	limited, cancel := context.WithTimeout(ctx, r.For)
	defer cancel()
	watched := make(chan struct{})
	watching, stop := context.WithCancel(ctx)
	go func() {
		defer close(watched)
		r.watch(watching, cancel)
	}()
	<-r.pulse.Next([]int{0}, r.began) // once work has begun
	r.nemeses.Run(limited)
	<-limited.Done() // also if there are no nemeses
	r.ended = time.Now()
	r.crew.Quiet()
	stop()
	<-watched
}

// watch checks the permanent invariants at every tick, and re-arms parked events like an operator.
func (r *run) watch(ctx context.Context, broken func()) {
	patience := min(max(r.For/10, 15*time.Second), time.Minute)
	at := verdict.Ticker{Branches: r.branches, Client: r.client, Transactor: r.tr, Checks: &r.checks, Patience: patience}
	defer func() { r.samples = at.Samples }()
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		bounded, cancel := context.WithTimeout(ctx, 2*tickEvery)
		at.Tick(bounded)
		r.rearm(bounded)
		cancel()
		if r.FailFast && !r.checks.OK() {
			broken()
		}
	}
}

// rearm re-arms all parked events. It ignores errors, because the next tick tries again.
func (r *run) rearm(ctx context.Context) {
	_, _ = outbox.NewStore(r.tr).As("operator").RearmAll(ctx, outbox.Filter{}, outbox.RearmOptions{MaxParkedAgain: -1})
}

// drain waits until all work is done.
func (r *run) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainWithin+10*time.Second)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	left := errors.New("not checked yet")
	for quiet := 0; quiet < 5; {
		select {
		case <-ctx.Done():
			r.drained = time.Since(r.ended)
			r.checks.Hold(verdict.Drains, false, "not drained after %v: %v", r.drained.Round(time.Second), left)
			return
		case <-ticker.C:
		}
		r.rearm(ctx)
		if left = r.left(ctx); left != nil {
			quiet = 0
			continue
		}
		if quiet == 0 {
			r.drained = time.Since(r.ended)
		}
		quiet++
	}
	r.checks.Hold(verdict.Drains, r.drained <= drainWithin, "draining took %v", r.drained)
}

// left returns what is left to do, or nil if nothing is.
func (r *run) left(ctx context.Context) error {
	for _, b := range r.branches {
		for _, key := range []string{b.Orders, b.Ticks, b.Signals, b.Steps} {
			if err := unread(ctx, r.client, key); err != nil {
				return err
			}
		}
	}
	counts, err := outbox.NewStore(r.tr).Counts(ctx)
	if err != nil {
		return err
	}
	if counts.Pending+counts.Waiting+counts.Parked > 0 {
		return fmt.Errorf("%d events are pending (%d of them leased), %d waiting, %d parked", counts.Pending, counts.Leased, counts.Waiting, counts.Parked)
	}
	return nil
}

// unread returns the entries of a stream that are not read or not acknowledged.
func unread(ctx context.Context, client redis.UniversalClient, key string) error {
	groups, err := client.XInfoGroups(ctx, key).Result()
	if err != nil {
		return err
	}
	last, err := client.XRevRangeN(ctx, key, "+", "-", 1).Result()
	if err != nil {
		return err
	}
	if len(groups) == 0 && len(last) > 0 {
		return fmt.Errorf("%s: no consumer group reads the stream", key)
	}
	for _, group := range groups {
		if group.Pending > 0 || len(last) > 0 && group.LastDeliveredID != last[0].ID {
			return fmt.Errorf("%s: %d entries pending, the group has read up to %s", key, group.Pending, group.LastDeliveredID)
		}
	}
	return nil
}

// judge checks all invariants after the processes have stopped.
func (r *run) judge(ctx context.Context) (err error) {
	fmt.Fprintln(r.log, "checking the invariants")
	if r.story, err = verdict.Tell(r.dir); err != nil {
		return err
	}
	if r.world, err = verdict.Look(ctx, r.site.Plan, r.client, r.tr); err != nil {
		return err
	}
	evidence := verdict.Evidence{World: r.world, Story: r.story, Outages: r.nemeses.Outages, Taken: r.nemeses.Taken, Barrier: r.Wait > 0, Samples: r.samples}
	for _, f := range r.nemeses.Faults {
		if f.Kind == nemesis.Repeating {
			evidence.Repeats = append(evidence.Repeats, verdict.Span{From: f.From.UnixNano(), To: f.To.UnixNano()})
		}
	}
	r.losses = verdict.Judge(evidence, &r.checks)
	if err := verdict.Linear(ctx, evidence, r.client, r.Seed, &r.checks); err != nil {
		return err
	}
	r.judgeNemeses()
	return r.judgeOutbox(ctx)
}

func (r *run) judgeNemeses() {
	stale := r.nemeses.Stale
	for range stale.Tried - len(stale.Changed) {
		r.checks.Hold(verdict.StaleNothing, true, "")
	}
	for _, what := range stale.Changed {
		r.checks.Hold(verdict.StaleNothing, false, "%s", what)
	}
	for _, f := range r.nemeses.Faults {
		r.checks.Hold(verdict.FaultsInflicted, f.Err == "" || !strings.Contains(f.Kind, "kill") && !strings.Contains(f.Kind, "stop"), "%s %s: %s", f.Kind, f.Target, f.Err)
		r.checks.Hold(verdict.Recovers, f.Recovery >= 0, "%s %s at %v: no commit within 30 s", f.Kind, f.Target, f.From.Sub(r.began))
	}
	select {
	case err := <-r.crew.Failed:
		r.checks.Hold(verdict.ProcessesLast, false, "%v", err)
	default:
		r.checks.Hold(verdict.ProcessesLast, true, "")
	}
}

// judgeOutbox checks that every event is sent and counted once, and that nothing is left to repair.
func (r *run) judgeOutbox(ctx context.Context) error {
	store := outbox.NewStore(r.tr)
	counts, err := store.Counts(ctx)
	if err != nil {
		return err
	}
	remembered := int64(0)
	for _, h := range r.world.Branches {
		for _, effect := range h.Effects {
			if ground.IsRemembered(effect.Event) {
				remembered++
			}
		}
	}
	r.checks.Hold(verdict.StatesAddUp, counts.Sent == remembered && counts.Pending+counts.Waiting+counts.Parked == 0,
		"%d events should be remembered as sent, and %d are; %d are pending (%d of them leased), %d waiting, %d parked",
		remembered, counts.Sent, counts.Pending, counts.Leased, counts.Waiting, counts.Parked)
	worker, err := repair.New(r.tr, repair.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	for finding, err := range worker.Check(ctx) {
		if err != nil {
			return err
		}
		if finding.Kind != repair.Stale { // expired data is no damage
			r.checks.Hold(verdict.StatesAddUp, false, "repair reports: %v", finding)
		}
	}
	return nil
}
