// Package work implements the processes of a run: workers, which call, produce and handle, and relays.
package work

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/history"
)

// Roles of processes.
const (
	Worker = "worker" // calls, produces and handles; every other worker also publishes its commits
	Relay  = "relay"  // publishes and repairs
)

// Task is the line that a process reads from its standard input. The line "quiet" tells the process to begin no new work,
// and the end of the input tells it to stop.
type Task struct {
	Plan   ground.Plan   `json:"plan"`
	Name   string        `json:"name"` // of this process, unique in a run
	Role   string        `json:"role"`
	Number int           `json:"number"` // among those of its role
	Seed   uint64        `json:"seed"`
	Rate   float64       `json:"rate"` // calls and inputs per second
	Dir    string        `json:"dir"`  // for its history
	Skew   time.Duration `json:"skew"` // the offset of its clock
}

// Quiet is the line that tells a process to begin no new work.
const Quiet = "quiet"

// stopTimeout is how long a process may take to end by itself.
const stopTimeout = 15 * time.Second

// process is a process of the run.
type process struct {
	Task
	log      *slog.Logger
	history  *history.Log
	client   redis.UniversalClient
	tr       *luatx.Transactor
	branches []ground.Branch
	notes    *notes
	quiet    chan struct{} // closed when the process must begin no new work
	broken   atomic.Pointer[error]
}

// Main runs the process and returns its exit status.
func Main(in io.Reader, out, errs io.Writer) int {
	signal.Ignore(os.Interrupt) // the terminal sends it to all processes, but the parent decides
	log := slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelError}))
	if err := run(bufio.NewReader(in), out, log); err != nil {
		log.Error("process failed", "error", err)
		return 1
	}
	return 0
}

func run(in *bufio.Reader, out io.Writer, log *slog.Logger) error {
	var task Task
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &task)
	}
	if err != nil {
		return fmt.Errorf("read the task from standard input: %w", err)
	}
	p := &process{Task: task, log: log, client: task.Plan.Connect(), quiet: make(chan struct{})}
	defer func() { _ = p.client.Close() }() // the client is not used again
	if p.branches, err = task.Plan.Branches(); err != nil {
		return err
	}
	if p.history, err = history.Create(task.Dir, task.Name); err != nil {
		return err
	}
	defer func() { _ = p.history.Close() }() // each line is written at once
	if err := p.history.CheckClock(task.Skew); err != nil {
		return err
	}
	if p.tr, err = luatx.New(p.client, task.Plan.Transactor(log)); err != nil {
		return err
	}
	p.notes = newNotes(out, len(p.branches), p.now)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go p.compile(ctx)
	go p.obey(in, stop)
	if err := p.work(ctx); err != nil {
		return err
	}
	if broken := p.broken.Load(); broken != nil {
		return *broken
	}
	return nil
}

// compile makes the Transactor compile every plan at its first commit, and disables compiled scripts now and then.
func (p *process) compile(ctx context.Context) {
	commits := link.Of(p.tr).Commits
	for ctx.Err() == nil {
		commits.CompileAfter(1)
		sleep.For(ctx, rand.N(10*time.Second))
		commits.CompileAfter(0)
		sleep.For(ctx, rand.N(2*time.Second))
	}
}

// obey reads the lines of the parent until its input ends.
func (p *process) obey(in *bufio.Reader, stop func()) {
	quiet := sync.OnceFunc(func() { close(p.quiet) })
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		if line == Quiet+"\n" {
			quiet()
		}
	}
	quiet()
	stop()
	<-time.After(stopTimeout)
	p.log.Error("process did not stop in time")
	os.Exit(1)
}

func (p *process) work(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() { p.notes.run(ctx) })
	if p.Role == Relay {
		return p.relay(ctx)
	}
	if p.Number%2 == 0 {
		relays, err := p.newRelay(false)
		if err != nil {
			return err
		}
		running.Go(func() { p.check(relays.Run(ctx)) })
	}
	p.call(ctx, &running)
	return p.handle(ctx, &running)
}

// now returns the time of the machine's clock, even if this process has a wrong clock.
func (p *process) now() int64 { return time.Now().Add(-p.Skew).UnixNano() }

// check records an error with which the process cannot continue, so that Main returns it.
func (p *process) check(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		p.log.Error("process cannot continue", "error", err)
		p.broken.CompareAndSwap(nil, &err)
	}
}

// note writes a line of the history.
func (p *process) note(line history.Line) { p.check(p.history.Add(line)) }
