package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// busyTimeout is how long to wait until the victim starts to handle an invoice, because killing an idle worker has no
	// effect.
	busyTimeout = 250 * time.Millisecond
	// endTimeout is how long workers may take to end by themselves.
	endTimeout = 3 * stopTimeout
)

// crew holds the worker processes of a run.
type crew struct {
	program string
	config  []byte // of all workers
	log     *os.File
	failed  chan error // a worker that ended by itself

	members []*member

	mu   sync.Mutex
	took []time.Duration // for each invoice
}

// member is one process.
type member struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	ready   chan struct{} // closed when the worker reads
	busy    chan struct{} // holds a token when it has begun with an invoice
	done    chan struct{} // closed when it has ended
	leaving atomic.Bool   // it was killed, or asked to stop
}

// startCrew starts the workers. Their log is shown if a run fails.
func startCrew(workers int, config workerConfig, log *os.File) (*crew, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	c := &crew{program: program, config: text, log: log, failed: make(chan error, workers), members: make([]*member, workers)}
	for i := range c.members {
		if c.members[i], err = c.start(); err != nil {
			return nil, errors.Join(err, c.stop(0))
		}
	}
	return c, nil
}

func (c *crew) start() (*member, error) {
	cmd := exec.Command(c.program, workerCommand) //nolint:noctx // stop and kill end it
	cmd.Stderr = c.log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	m := &member{cmd: cmd, stdin: stdin, ready: make(chan struct{}), busy: make(chan struct{}, 1), done: make(chan struct{})}
	go c.watch(m, stdout)
	if _, err := stdin.Write(c.config); err != nil {
		return nil, errors.Join(fmt.Errorf("configure a worker: %w", err), m.end(0))
	}
	return m, nil
}

// watch reads the notes of a worker until it ends.
func (c *crew) watch(m *member, stdout io.Reader) {
	defer close(m.done)
	lines := bufio.NewScanner(stdout)
	ready := sync.OnceFunc(func() { close(m.ready) })
	for lines.Scan() {
		var n note
		if json.Unmarshal(lines.Bytes(), &n) != nil {
			continue // a line that a kill has cut off
		}
		switch {
		case n.Ready:
			ready()
		case n.Busy:
			select {
			case m.busy <- struct{}{}:
			default:
			}
		default:
			c.record(time.Duration(n.TookMicros) * time.Microsecond)
		}
	}
	_ = m.cmd.Wait() // the state has the same information
	if !m.leaving.Load() {
		select {
		case c.failed <- fmt.Errorf("a worker ended unexpectedly: %s", m.cmd.ProcessState):
		default: // one error is enough
		}
	}
}

func (c *crew) record(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = append(c.took, took)
}

func (c *crew) times() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.took
}

// isReady reports whether a worker reads, or has ended.
func (c *crew) isReady(i int) bool {
	select {
	case <-c.members[i].ready:
	case <-c.members[i].done:
	default:
		return false
	}
	return true
}

// kill kills a worker, if possible while it handles an invoice, and starts it again.
func (c *crew) kill(ctx context.Context, i int) error {
	victim := c.members[i]
	if err := victim.awaitBusy(ctx); err != nil {
		return err
	}
	if err := victim.end(0); err != nil {
		return err
	}
	next, err := c.start()
	if err == nil {
		c.members[i] = next
	}
	return err
}

// stop tells all workers to end, and kills those that still run after the grace.
func (c *crew) stop(grace time.Duration) error {
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		if m != nil {
			wg.Go(func() { errs[i] = m.end(grace) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// awaitBusy waits until the worker starts to handle an invoice.
func (m *member) awaitBusy(ctx context.Context) error {
	select {
	case <-m.ready:
	case <-m.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-m.busy: // from an earlier invoice
	default:
	}
	timer := time.NewTimer(busyTimeout)
	defer timer.Stop()
	select {
	case <-m.busy:
	case <-m.done:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// end tells the worker to stop, kills it after the grace, and waits until it has ended.
func (m *member) end(grace time.Duration) error {
	m.leaving.Store(true)
	if grace > 0 {
		_ = m.stdin.Close() // fails only if the worker has ended
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-m.done:
			return nil
		case <-timer.C:
		}
	}
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill worker %d: %w", m.cmd.Process.Pid, err)
	}
	<-m.done
	_ = m.stdin.Close()
	return nil
}
