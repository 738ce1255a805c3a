// Package child runs the servers of tests as processes that end with the test process.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a child. On Linux the kernel ends it, too, when the test process dies.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// Start starts a command.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	endWithParent(cmd.SysProcAttr)
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run keeps the thread that started the child for as long as the child lives: the kernel sends the parent-death
// signal when that thread ends, not when the process does.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // an exit status of a server that was killed says nothing
	}
	close(p.done)
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// IsAlive reports whether the process runs.
func (p *Process) IsAlive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal. It returns nil if the process has ended.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// End sends the signal and waits; a process that does not obey in time is killed.
func (p *Process) End(signal os.Signal) error {
	if err := p.Signal(signal); err != nil {
		return err
	}
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	err := p.cmd.Process.Kill()
	<-p.done
	return errors.Join(fmt.Errorf("process %d did not exit within 10 s of %v and was killed", p.Pid(), signal), err)
}

// Kill ends the process at once.
func (p *Process) Kill() error { return p.End(syscall.SIGKILL) }

// Await calls ready until it returns nil, or the process or the context has ended. In the last two cases the error is the
// last one of ready, with the cause or with the end of the process's output.
func (p *Process) Await(ctx context.Context, output func() string, ready func() error) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-p.done:
			return fmt.Errorf("%s exited during startup: %s", p.cmd.Path, output())
		case <-ticker.C:
		}
	}
}
