package sqltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/luatx/luatx/internal/test/apt"
)

// owner is whom a server runs as: servers refuse to run as root. Nil: as this process.
type owner struct{ uid, gid uint32 }

// ownerOf finds an unprivileged user by the first name that exists.
func ownerOf(names ...string) (*owner, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // nobody else is needed
	}
	for _, name := range append(names, "nobody") {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUser := strconv.ParseUint(found.Uid, 10, 32)
		gid, errGroup := strconv.ParseUint(found.Gid, 10, 32)
		return &owner{uint32(uid), uint32(gid)}, errors.Join(errUser, errGroup)
	}
	return nil, fmt.Errorf("no user of %q exists to run the server as", names)
}

// command prepares a command as the owner, in its directory.
func (o *owner) command(dir, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir, "LC_ALL=C")
	cmd.SysProcAttr = childAttributes()
	if o != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: o.uid, Gid: o.gid}
	}
	return cmd
}

// directory makes a directory of the owner's.
func (o *owner) directory() (string, error) {
	dir, err := os.MkdirTemp("", "luatx-sql-")
	if err != nil || o == nil {
		return dir, err
	}
	return dir, os.Chown(dir, int(o.uid), int(o.gid))
}

// process is a child that is ended with the test process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	log  bytes.Buffer  // read after that alone
}

func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run keeps the thread that started the child for as long as the child lives: the kernel sends the parent-death signal
// when that thread ends, not when the process does.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // the exit status of a server that was ended says nothing
	}
	close(p.done)
}

// end sends the signal, and kills what does not obey in time.
func (p *process) end(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
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
	return errors.Join(fmt.Errorf("process %d did not end by %v", p.cmd.Process.Pid, signal), err)
}

// until calls ready until it returns nil, the process has ended, or the context has.
func (p *process) until(ctx context.Context, ready func() error) error {
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
			return fmt.Errorf("%s ended at its start: %s", p.cmd.Path, apt.LastLines(p.log.String(), 10))
		case <-ticker.C:
		}
	}
}
