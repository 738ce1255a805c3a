// Package crew is the worker and relay processes of a run.
package crew

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/luatx/luatx/torture/internal/skew"
	"github.com/luatx/luatx/torture/internal/work"
)

// Config says who is in the crew.
type Config struct {
	Program string   // this program
	Args    []string // with which it is one of the crew
	Skewed  string   // the same program, whose clock is off by what its environment says; empty: there is none
	Log     io.Writer
	Noted   func(work.Note) // called for each note, by several goroutines at once
}

// Crew is processes with tasks.
type Crew struct {
	cfg     Config
	members []*Member
	Failed  chan error // receives an error when a process ends by itself

	logged sync.Mutex
}

// Member is one place in the crew; its process changes. Its methods are called one at a time.
type Member struct {
	crew *Crew
	task work.Task
	runs int

	mu   sync.Mutex
	proc *process
}

type process struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	done    chan struct{}
	leaving bool // under the member's lock: it was killed, or told to stop
}

// Start starts a process for each task.
func Start(cfg Config, tasks []work.Task) (*Crew, error) {
	c := &Crew{cfg: cfg, Failed: make(chan error, 1)}
	for _, task := range tasks {
		m := &Member{crew: c, task: task}
		if err := m.Start(0); err != nil {
			return nil, errors.Join(err, c.Stop(0))
		}
		c.members = append(c.members, m)
	}
	return c, nil
}

// Members are those of a role.
func (c *Crew) Members(role string) []*Member {
	return slices.DeleteFunc(slices.Clone(c.members), func(m *Member) bool { return m.task.Role != role })
}

// CanSkew says whether a process can have a clock that is off.
func (c *Crew) CanSkew() bool { return c.cfg.Skewed != "" }

// Quiet tells all to begin nothing any more.
func (c *Crew) Quiet() {
	for _, m := range c.members {
		m.mu.Lock()
		_, _ = io.WriteString(m.proc.stdin, work.Quiet+"\n") // who has ended is quiet
		m.mu.Unlock()
	}
}

// Stop tells all to end, and kills who has not after the grace.
func (c *Crew) Stop(grace time.Duration) error {
	var wg sync.WaitGroup
	errs := make([]error, len(c.members))
	for i, m := range c.members {
		wg.Go(func() { errs[i] = m.end(grace) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Name is that of the member.
func (m *Member) Name() string { return fmt.Sprintf("%s-%d", m.task.Role, m.task.Number) }

// Start starts the member's next process, with a clock that is off.
func (m *Member) Start(off time.Duration) error {
	m.runs++
	task := m.task
	task.Name, task.Skew = fmt.Sprintf("%s%d.%d", m.task.Role[:1], m.task.Number, m.runs), off
	task.Seed += uint64(m.runs) << 32 //nolint:gosec // a count
	text, err := json.Marshal(task)
	if err != nil {
		return err
	}
	cfg := m.crew.cfg
	program := cfg.Program
	if off != 0 {
		program = cfg.Skewed
	}
	cmd := exec.Command(program, cfg.Args...) //nolint:noctx // end ends it
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", skew.Env, int64(off.Seconds())))
	cmd.Stderr = prefixed{m.crew, task.Name}
	cmd.SysProcAttr = childAttributes()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p := &process{cmd: cmd, stdin: stdin, done: make(chan struct{})}
	started := make(chan error, 1)
	go m.watch(p, stdout, started)
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", m.Name(), err)
	}
	m.mu.Lock()
	m.proc = p
	m.mu.Unlock()
	if _, err := stdin.Write(append(text, '\n')); err != nil {
		return errors.Join(fmt.Errorf("tell %s what to do: %w", m.Name(), err), m.end(0))
	}
	return nil
}

// watch starts the process and reads what it says until it ends. It keeps its thread: the kernel ends the child with it.
func (m *Member) watch(p *process, stdout io.Reader, started chan<- error) {
	runtime.LockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var n work.Note
		if json.Unmarshal(lines.Bytes(), &n) == nil { // a kill may have cut a line off
			m.crew.cfg.Noted(n)
		}
	}
	_ = p.cmd.Wait() // its state says the same
	m.mu.Lock()
	defer m.mu.Unlock()
	if !p.leaving {
		select {
		case m.crew.Failed <- fmt.Errorf("%s ended by itself: %s", m.Name(), p.cmd.ProcessState):
		default: // one is enough
		}
	}
}

// Kill ends the member's process at once.
func (m *Member) Kill() error { return m.end(0) }

// Pause stops the process (SIGSTOP).
func (m *Member) Pause() error { return m.signal(stopSignal) }

// Resume lets a paused process go on.
func (m *Member) Resume() error { return m.signal(continueSignal) }

func (m *Member) signal(sig os.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sig == nil {
		return errors.ErrUnsupported
	}
	return m.proc.cmd.Process.Signal(sig)
}

func (m *Member) end(grace time.Duration) error {
	m.mu.Lock()
	p := m.proc
	if p == nil {
		m.mu.Unlock()
		return nil
	}
	p.leaving = true
	m.mu.Unlock()
	_ = p.stdin.Close() // where that fails, it has ended
	if grace > 0 {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.done:
			if !p.cmd.ProcessState.Success() {
				return fmt.Errorf("%s: %s", m.Name(), p.cmd.ProcessState)
			}
			return nil
		case <-timer.C:
		}
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", m.Name(), err)
	}
	<-p.done
	return nil
}

// prefixed writes lines to the crew's log.
type prefixed struct {
	crew *Crew
	name string
}

func (p prefixed) Write(text []byte) (int, error) {
	p.crew.logged.Lock()
	defer p.crew.logged.Unlock()
	for line := range bytes.Lines(text) {
		if _, err := fmt.Fprintf(p.crew.cfg.Log, "%s: %s\n", p.name, bytes.TrimRight(line, "\n")); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}
