package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/luatx/luatx/internal/test/redistest"
)

// terminal is a pseudo-terminal whose user is the test.
type terminal struct {
	person *os.File
	side   *os.File // the program's side

	mu    sync.Mutex
	shown bytes.Buffer
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("the system has no pseudo-terminals: %v", err)
	}
	control := func(request uintptr, n *int32) {
		t.Helper()
		if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request, uintptr(unsafe.Pointer(n))); failed != 0 {
			t.Fatal(failed)
		}
	}
	var unlock, number int32
	control(syscall.TIOCSPTLCK, &unlock)
	control(syscall.TIOCGPTN, &number)
	side, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	redistest.Must(t, err)
	term := &terminal{person: person, side: side}
	done := make(chan struct{})
	go func() { // until the terminal is closed
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			n, err := person.Read(buffer)
			term.mu.Lock()
			term.shown.Write(buffer[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = side.Close()
		<-done // the read fails when the program's last side is closed
		_ = person.Close()
	})
	return term
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.shown.String()
}

// TestTerminalMustConfirmAndOnlyShownEventsChange runs the program at a terminal.
func TestTerminalMustConfirmAndOnlyShownEventsChange(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s := newSite(t, server.Addr())
	s.acts(0, lines("network", "1", "2"), "parked", "import", "-", "--yes")
	for _, c := range []struct {
		answer string
		status int
		parked string
	}{{"no", statusUsage, "0 0 0 2 0"}, {"", statusUsage, "0 0 0 2 0"}, {"yes", statusFine, "2 0 0 1 0"}} {
		term := newTerminal(t)
		exe, err := os.Executable()
		redistest.Must(t, err)
		cmd := exec.Command(exe, append([]string{"parked", "rearm", "--class", "network", "--as", "alice"}, s.flags...)...)
		cmd.Env = append(slices.Clone(os.Environ()), asMain+"=1", "TERM=xterm")
		var out bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = term.side, &out, term.side
		redistest.Must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // fails if it has ended
		redistest.Eventually(t, "the question", func() bool { return strings.Contains(term.text(), "Re-arm 2 events? Type yes: ") })
		if c.status == statusFine { // another event that was not shown
			s.acts(0, lines("network", "3"), "parked", "import", "-", "--yes")
		}
		_, err = term.person.WriteString(c.answer + "\n")
		redistest.Must(t, err)
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != c.status {
			t.Errorf("the answer %q: %v\n%s%s", c.answer, err, out.String(), term.text())
		}
		s.has(out.String(), "MATCHED")
		s.has(s.run(0, "", "stats", "--over", "0"), c.parked)
	}
}
