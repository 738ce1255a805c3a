package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

// terminal is a pseudo-terminal whose user is the test.
type terminal struct {
	person *os.File
	side   *os.File // the program's side
	done   chan struct{}

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
	term := &terminal{person: person, side: side, done: make(chan struct{})}
	go func() { // until the program's last side is closed
		defer close(term.done)
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
		_ = term.all()
		_ = person.Close()
	})
	return term
}

// all ends the test's hold on the program's side. It returns all that a program showed that has ended.
func (term *terminal) all() string {
	_ = term.side.Close() // fails the second time
	<-term.done
	return term.text()
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.shown.String()
}

// atTerminal runs a command at a terminal, and answers its question after a function has run. It returns the status and the output.
func (s site) atTerminal(question string, between func(), answer string, words ...string) (status int, output string) {
	s.t.Helper()
	term := newTerminal(s.t)
	exe, err := os.Executable()
	redistest.Must(s.t, err)
	cmd := exec.Command(exe, slices.Concat(words, []string{"--as", "alice"}, s.flags)...)
	cmd.Env = append(slices.Clone(os.Environ()), asMain+"=1", "TERM=xterm")
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.side, &out, term.side
	redistest.Must(s.t, cmd.Start())
	s.t.Cleanup(func() { _ = cmd.Process.Kill() }) // fails if it has ended
	redistest.Eventually(s.t, "the question", func() bool { return strings.Contains(term.text(), question+"? Type yes: ") })
	between()
	_, err = term.person.WriteString(answer + "\n")
	redistest.Must(s.t, err)
	_ = cmd.Wait() // the status says whether it failed
	return cmd.ProcessState.ExitCode(), out.String() + term.all()
}

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
		status, out := s.atTerminal("Re-arm 2 events", func() {
			if c.status == statusFine { // another event that was not shown
				s.acts(0, lines("network", "3"), "parked", "import", "-", "--yes")
			}
		}, c.answer, "parked", "rearm", "--class", "network")
		if status != c.status {
			t.Errorf("the answer %q: status %d, want %d\n%s", c.answer, status, c.status, out)
		}
		s.has(out, "MATCHED")
		s.has(s.run(0, "", "stats", "--over", "0"), c.parked)
	}
}

func TestTerminalChangesThePreviewedEventsAndNoneThatComeLater(t *testing.T) {
	t.Parallel()
	park := func(s site, client redis.UniversalClient, aggregate, id string) { s.block(client, aggregate, "", id) }
	for words, c := range map[string]struct {
		question, state string
		add             func(s site, client redis.UniversalClient, aggregate, id string)
	}{
		"parked rearm --text account":                             {"Re-arm 5 events", "parked", park},
		"parked discard --text account --reason r":                {"Discard 5 events for good", "parked", park},
		"events discard --state parked --text account --reason r": {"Discard 5 events for good", "parked", park},
		"events park --type sold --reason r": {"Park 5 events", "pending", func(s site, client redis.UniversalClient, aggregate, id string) {
			s.t.Helper()
			body := fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"type":"sold","source":"/shop","destination":"bank"}`, id)
			_, err := s.service(client).Enqueue(redistest.Soon(s.t), aggregate, luatx.Event{ID: id, Body: body})
			redistest.Must(s.t, err)
		}},
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			client := server.Client(t)
			s := newSite(t, server.Addr())
			tr := s.service(client)
			aggregates := map[int]string{}
			for i := 0; len(aggregates) < 4; i++ {
				aggregate := fmt.Sprint("aggregate-", i)
				aggregates[slotOf(t, tr, aggregate)] = aggregate
			}
			slots := slices.Sorted(maps.Keys(aggregates))
			add := func(slot int, ids ...string) {
				for _, id := range ids {
					c.add(s, client, aggregates[slot], id)
				}
			}
			add(slots[3], "1", "2", "3", "4", "5")
			status, out := s.atTerminal(c.question, func() { add(slots[0], "6", "7", "8", "9", "10") }, "yes", strings.Fields(words)...)
			if status != statusFine {
				t.Errorf("status %d:\n%s", status, out)
			}
			var left []int
			for e, err := range outbox.NewStore(tr).List(redistest.Soon(t), outbox.State(c.state), outbox.ListOptions{}) {
				redistest.Must(t, err)
				left = append(left, e.Slot)
			}
			if !slices.Equal(left, slices.Repeat(slots[:1], 5)) {
				t.Errorf("slots of the %s events: %v, want 5 in the slot %d", c.state, left, slots[0])
			}
		})
	}
}

func TestTerminalDiscardsThePreviewedDeadLettersAndNoneThatComeLater(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	s := newSite(t, server.Addr())
	keys := stream.PartitionKeys(s.service(client).Keyspace(), "orders")
	redistest.Must(t, client.XAdd(redistest.Soon(t), &redis.XAddArgs{Stream: keys[0], Values: []string{"f", "v"}}).Err())
	giveUp(t, client, keys[3], "billing", "no such bank", 5)
	status, out := s.atTerminal("Discard 5 dead letters for good", func() { giveUp(t, client, keys[0], "billing", "no such bank", 5) }, "yes",
		"dead", "discard", "orders", "--all", "--reason", "late")
	first, last := client.XLen(t.Context(), stream.DeadLetterKey(keys[0])).Val(), client.XLen(t.Context(), stream.DeadLetterKey(keys[3])).Val()
	if status != statusFine || first != 5 || last != 0 {
		t.Errorf("status %d, %d dead letters in the first partition and %d in the last, want 5 and 0:\n%s", status, first, last, out)
	}
}

func TestTerminalDoesNotImportAPipeThatThePreviewHasRead(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	s := newSite(t, server.Addr()).begin(client)
	for words, input := range map[string]string{
		"parked import": lines("network", "1", "2"),
		"dead import {" + s.namespace + "}:mails --reason r": fmt.Sprintf(`{"stream":"{%[1]s}:mails","fields":["a","b"]}{"stream":"{%[1]s}:mails","fields":["a","c"]}`, s.namespace),
	} {
		out, in, err := os.Pipe()
		redistest.Must(t, err)
		_, err = in.WriteString(input)
		redistest.Must(t, errors.Join(err, in.Close()))
		name := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), out.Fd()) // as <(…) of a shell
		question := "Import 2 events"
		if strings.HasPrefix(words, "dead") {
			question = "Import 2 dead letters"
		}
		status, shown := s.atTerminal(question, func() {}, "yes", append(strings.Fields(words), name)...)
		redistest.Must(t, out.Close())
		if status != statusUsage {
			t.Errorf("%s: status %d, want %d", words, status, statusUsage)
		}
		s.has(shown, "can be read only once", "--yes")
	}
}
