package redistest

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

// process is a child that is ended with the test process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

func startProcess(output *os.File, path string, args ...string) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = childAttributes()
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return p, nil
}

// run keeps the thread that started the child for as long as the child lives: the kernel sends the parent-death
// signal when that thread ends, not when the process does.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // an exit status of a server that was killed says nothing
	}
	close(p.done)
}

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// end sends the signal and waits; a process that does not obey in time is killed.
func (p *process) end(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
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
	return errors.Join(fmt.Errorf("process %d did not end by %v within 10 s and was killed", p.cmd.Process.Pid, sig), err)
}

func (p *process) kill() error { return p.end(syscall.SIGKILL) }

// poll calls ready until it returns nil, and returns its last error when the context ends.
func poll(ctx context.Context, every time.Duration, ready func() error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var last error
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if last == nil || !errors.Is(err, ctx.Err()) { // that the context ended says nothing
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}
