// Package crew manages the worker and relay processes of a run.
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

// Config configures a Crew.
type Config struct {
	Program string   // path of this program
	Args    []string // arguments that make it a member of the crew
	Skewed  string   // path of the same program built with a wrong clock, whose offset is in the environment; may be empty
	Log     io.Writer
	Noted   func(work.Note) // called for each note, by several goroutines at once
}

// Crew is a set of processes with tasks.
type Crew struct {
	cfg     Config
	members []*Member
	Failed  chan error // receives an error when a process ends unexpectedly

	logged sync.Mutex
}

// Member is one task of the crew, for which processes run one after another. Its methods must not be called concurrently.
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
	leaving bool // guarded by the member's lock; set when the process is killed or told to stop
}

// Start starts a process for each task. If one fails to start, Start stops the others and returns an error.
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

// Members returns the members with a role.
func (c *Crew) Members(role string) []*Member {
	return slices.DeleteFunc(slices.Clone(c.members), func(m *Member) bool { return m.task.Role != role })
}

// CanSkew reports whether members can run with a wrong clock.
func (c *Crew) CanSkew() bool { return c.cfg.Skewed != "" }

// Quiet tells all processes to begin no new work.
func (c *Crew) Quiet() {
	for _, m := range c.members {
		m.mu.Lock()
		_, _ = io.WriteString(m.proc.stdin, work.Quiet+"\n") // an ended process fails, and is quiet
		m.mu.Unlock()
	}
}

// Stop tells all processes to end. It kills those that still run after the grace.
func (c *Crew) Stop(grace time.Duration) error {
	var wg sync.WaitGroup
	errs := make([]error, len(c.members))
	for i, m := range c.members {
		wg.Go(func() { errs[i] = m.end(grace) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Name returns the name of the member: role and number.
func (m *Member) Name() string { return fmt.Sprintf("%s-%d", m.task.Role, m.task.Number) }

// Start starts the member's next process. Its clock is wrong by the given offset.
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
		return errors.Join(fmt.Errorf("send the task to %s: %w", m.Name(), err), m.end(0))
	}
	return nil
}

// watch starts the process and reads its notes until it ends. It keeps its thread, because the kernel ends the child
// together with the thread.
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
		if json.Unmarshal(lines.Bytes(), &n) == nil { // a kill may cut off the last line
			m.crew.cfg.Noted(n)
		}
	}
	_ = p.cmd.Wait() // the state has the same information
	m.mu.Lock()
	defer m.mu.Unlock()
	if !p.leaving {
		select {
		case m.crew.Failed <- fmt.Errorf("%s exited unexpectedly: %s", m.Name(), p.cmd.ProcessState):
		default: // one error is enough
		}
	}
}

// Kill kills the member's process.
func (m *Member) Kill() error { return m.end(0) }

// Pause stops the process (SIGSTOP).
func (m *Member) Pause() error { return m.signal(stopSignal) }

// Resume continues a paused process.
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
	_ = p.stdin.Close() // fails only if the process has ended
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

// prefixed writes lines to the crew's log with the name of their process.
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
