package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/cmd/luatx/internal/shop"
	"github.com/luatx/luatx/internal/test/redistest"
)

// program starts the program on a server, with more orders than it can finish.
func program(t *testing.T, addr string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	redistest.Must(t, err)
	cmd = exec.Command(exe, "demo", "--mode", "scripted", "--rate", "5", "--redis", addr)
	cmd.Env = append(os.Environ(), asMain+"=1", "TMPDIR="+t.TempDir()) // a killed process leaves its log
	stderr = new(bytes.Buffer)
	cmd.Stderr = stderr
	redistest.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // fails if it has ended
	return cmd, stderr
}

// workersOf waits until orders are being applied. It returns the process ids of the demo's workers, or none if the system
// does not show them.
func workersOf(t *testing.T, cmd *exec.Cmd, client *redis.Client) (pids []int) {
	t.Helper()
	redistest.Eventually(t, "orders to be applied", func() bool {
		return len(client.Keys(t.Context(), "luatx-demo-*:applied").Val()) > 0
	})
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	redistest.Must(t, err)
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a thread that has ended
			t.Fatal(err)
		}
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			redistest.Must(t, err)
			pids = append(pids, pid)
		}
	}
	if len(lists) > 0 && len(pids) != 4 {
		t.Fatalf("the workers are %v", pids)
	}
	return pids
}

// wantGone waits until none of the processes is a worker any more.
func wantGone(t *testing.T, pids []int) {
	t.Helper()
	redistest.Eventually(t, "the workers to end", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return err == nil && bytes.Contains(text, []byte(workerCommand))
		})
	})
}

func TestInterruptedDemoLeavesNoKeyAndNoProcess(t *testing.T) {
	t.Parallel()
	srv := redistest.Single(t, redistest.Own())
	cmd, stderr := program(t, srv.Addr())
	client := srv.Client(t)
	workers := workersOf(t, cmd, client)
	redistest.Must(t, cmd.Process.Signal(os.Interrupt))
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != statusInterrupted {
		t.Errorf("it ended with %d, %v: %s", code, err, stderr)
	}
	if !strings.Contains(stderr.String(), "luatx demo: interrupted\n") || strings.Contains(stderr.String(), "log") {
		t.Errorf("it says %q", stderr)
	}
	if n, err := client.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("%d keys stayed, %v", n, err)
	}
	wantGone(t, workers)
}

func TestWorkersDoNotOutliveAKilledDemo(t *testing.T) {
	t.Parallel()
	srv := redistest.Single(t, redistest.Own())
	cmd, _ := program(t, srv.Addr())
	workers := workersOf(t, cmd, srv.Client(t))
	redistest.Must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	wantGone(t, workers)
}

func testLog(t *testing.T) *os.File {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	redistest.Must(t, err)
	t.Cleanup(func() { _ = log.Close() })
	return log
}

func testConfig(addr string) workerConfig {
	return workerConfig{Server: server{Addrs: []string{addr}}, Namespace: newNamespace(), Mode: shop.Scripted}
}

func TestWorkersThatCannotWorkEndTheRunWithTheirLog(t *testing.T) {
	t.Parallel()
	log := testLog(t)
	crew, err := startCrew(3, testConfig("127.0.0.1:1"), log)
	redistest.Must(t, err)
	if err := <-crew.failed; !strings.Contains(err.Error(), "a worker ended unexpectedly: exit status 1") {
		t.Errorf("the crew failed with %v", err)
	}
	if err := crew.stop(0); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(log.Name())
	if err != nil || !bytes.Contains(text, []byte("connection refused")) {
		t.Errorf("the log is %s, %v", text, err)
	}
}

func TestKilledWorkerIsReplacedAndOthersEndWhenStopped(t *testing.T) {
	t.Parallel()
	log := testLog(t)
	crew, err := startCrew(2, testConfig(redistest.Shared(t).Addr()), log)
	redistest.Must(t, err)
	t.Cleanup(func() {
		if err := crew.stop(0); err != nil {
			t.Error(err)
		}
	})
	victim, other := crew.members[1], crew.members[0]
	redistest.Must(t, crew.kill(t.Context(), 1))
	if status := victim.cmd.ProcessState; status.Success() || crew.members[1] == victim || crew.members[0] != other {
		t.Errorf("the victim ended with %v", status)
	}
	for _, m := range crew.members {
		<-m.ready
	}
	redistest.Must(t, crew.stop(30*time.Second))
	for i, m := range crew.members {
		if !m.cmd.ProcessState.Success() {
			t.Errorf("worker %d ended with %v", i, m.cmd.ProcessState)
		}
	}
	select {
	case err := <-crew.failed:
		t.Error(err)
	default:
	}
	if text, err := os.ReadFile(log.Name()); err != nil || len(text) > 0 {
		t.Errorf("the log is %s, %v", text, err)
	}
}

func TestKillWaitsForBusyVictimButNotForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &member{ready: make(chan struct{}), busy: make(chan struct{}, 1), done: make(chan struct{})}
		ended, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := m.awaitBusy(ended); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("not ready: %v", err)
		}
		wait := func(want time.Duration, when string) {
			t.Helper()
			start := time.Now()
			if err := m.awaitBusy(t.Context()); err != nil || time.Since(start) != want {
				t.Errorf("%s: waited for %s, %v", when, time.Since(start), err)
			}
		}
		close(m.ready)
		wait(busyTimeout, "idle")
		m.busy <- struct{}{}
		wait(busyTimeout, "busy before")
		time.AfterFunc(time.Millisecond, func() { m.busy <- struct{}{} })
		wait(time.Millisecond, "busy soon")
		if err := m.awaitBusy(ended); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the context has ended: %v", err)
		}
		time.AfterFunc(time.Millisecond, func() { close(m.done) })
		wait(time.Millisecond, "it ends")
	})
}

func TestWorkerReportsMissingConfiguration(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	redistest.Must(t, err)
	cmd := exec.Command(exe, workerCommand)
	cmd.Stdin = strings.NewReader("nothing of use")
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != statusUsage || !strings.Contains(string(text), "configuration") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestCrewReadsNotesAndIgnoresLinesThatAKillCutOff(t *testing.T) {
	t.Parallel()
	c := &crew{failed: make(chan error, 1)}
	m := &member{cmd: exec.Command(os.Args[0], "-test.run=^$"), ready: make(chan struct{}), busy: make(chan struct{}, 1), done: make(chan struct{})}
	m.leaving.Store(true)
	redistest.Must(t, m.cmd.Start())
	r, w := io.Pipe()
	go c.watch(m, r)
	out := &notes{out: json.NewEncoder(w)}
	out.write(note{TookMicros: 1500})
	out.write(note{Ready: true})
	<-m.ready
	out.write(note{Ready: true})
	out.write(note{Busy: true})
	out.write(note{Busy: true})
	out.write(note{TookMicros: 20})
	fmt.Fprint(w, `{"took_us":12`)
	_ = w.Close()
	<-m.done
	if len(m.busy) != 1 {
		t.Errorf("%d tokens of a busy worker", len(m.busy))
	}
	if times := c.times(); len(times) != 2 || times[0] != 1500*time.Microsecond || times[1] != 20*time.Microsecond {
		t.Errorf("the times are %v", times)
	}
}
