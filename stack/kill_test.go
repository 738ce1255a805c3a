package stack_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/stream"
)

const envChild = "LUATX_STACK_CHILD"

// TestChildProcessRunsTheService is a process of the service. It ends with its parent or by a signal.
func TestChildProcessRunsTheService(t *testing.T) {
	words := strings.Fields(os.Getenv(envChild))
	if len(words) != 4 {
		t.Skip("runs as a child of other tests only")
	}
	for _, m := range modes {
		if m.name == words[0] {
			client := redistest.Client(t, words[1])
			s := namedService(t, client, m, words[2])
			var repo accounts = redisAccounts{client, s.keyspace}
			if words[3] == "legacy" {
				repo = legacyAccounts{client, s.name}
			}
			s.start(newHandler(repo))
		}
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	redistest.Must(t, err)
}

// startChild starts a process of the service, and returns a function that kills it.
func (s *service) startChild(addr, names string) (kill func()) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), os.Args[0], "-test.run=^TestChildProcessRunsTheService$")
	cmd.Env = append(os.Environ(), fmt.Sprint(envChild, "=", s.mode.name, " ", addr, " ", s.name, " ", names))
	stdin, err := cmd.StdinPipe()
	redistest.Must(s.t, err)
	redistest.Must(s.t, cmd.Start())
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = stdin.Close()
		}
	}
	s.t.Cleanup(kill)
	return kill
}

// step is a point between two requests of a process.
type step struct {
	mode  mode
	name  string
	match respproxy.Matcher
	// held means that the request is never sent. Otherwise, it is executed, and its reply is lost.
	held bool
	// lost states, like the documentation, whether the message is lost if the process dies here.
	lost bool
	// reached reports whether the server has executed the request.
	reached func(s *service, victim charge) bool
}

func (s *service) marked(victim charge) bool {
	return s.client.Exists(s.t.Context(), s.name+":inbox:/shop:"+victim.Order).Val() == 1
}

func (s *service) applied(victim charge) bool {
	sums, _, _, err := redisAccounts{s.client, s.keyspace}.keys(victim.Customer)
	redistest.Must(s.t, err)
	return s.client.HGet(s.t.Context(), sums, "spent").Val() != ""
}

func (s *service) acked(victim charge) bool { return s.applied(victim) && s.pending() == 0 }

func steps(t testing.TB) []step {
	t.Helper()
	set, multi, exec, xack := respproxy.Command("SET", "SETNX"), respproxy.Command("MULTI"), respproxy.Command("EXEC"), respproxy.Command("XACK")
	script := respproxy.Command("EVALSHA")
	return []step{
		{modes[0], "before SET NX", set, true, false, nil},
		{modes[0], "after SET NX", set, false, true, (*service).marked},
		{modes[0], "before EXEC", multi, true, true, nil},
		{modes[0], "after EXEC", exec, false, false, (*service).applied},
		{modes[0], "before XACK", xack, true, false, nil},
		{modes[0], "after XACK", xack, false, false, (*service).acked},
		{modes[1], "before EVALSHA", script, true, false, nil},
		{modes[1], "after EVALSHA", script, false, false, (*service).acked},
	}
}

// TestKillBetweenRequestsLosesOnlyTheDocumentedMessages kills a process of each mode between every two requests for a message,
// and lets another process continue. Pipeline mode loses the message only between SET NX and EXEC, as documented. Scripted mode
// loses none. Neither applies a message twice.
func TestKillBetweenRequestsLosesOnlyTheDocumentedMessages(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, step := range steps(t) {
		t.Run(step.mode.name+" "+step.name, func(t *testing.T) {
			t.Parallel()
			client, proxy := server.Client(t), redistest.Proxy(t, server.Addr())
			s := newService(t, client, step.mode)
			before := []charge{{"c0", "order-1", 100}, {"c1", "order-2", 950}, {"c0", "order-3", 300}}
			victim := charge{"victim", "order-4", 999}
			after := []charge{{"c1", "order-5", 500}, {"c0", "order-6", 600}}
			s.feed(before)
			kill := s.startChild(proxy.Addr(), "tagged")
			redistest.Eventually(t, "the process to be at work", func() bool {
				return s.waiting() == eventsOf(before) && s.pending() == 0
			})

			if step.held {
				hold := proxy.Hold(step.match)
				s.feed([]charge{victim})
				redistest.Must(t, hold.Wait(redistest.Soon(t)))
			} else {
				proxy.Next(1, step.match, respproxy.DropReply())
				s.feed([]charge{victim})
				redistest.Eventually(t, "the request to be executed", func() bool { return step.reached(s, victim) })
			}
			kill()

			s.feed(after)
			s.start(newHandler(redisAccounts{client, s.keyspace}), func(cfg *stream.SubscriberConfig) {
				cfg.MaxIdleTime, cfg.ClaimInterval = 50*time.Millisecond, 10*time.Millisecond
			})
			want := append(before, after...)
			if !step.lost {
				want = append(want, victim)
			}
			redistest.Eventually(t, "everything to be acknowledged", func() bool { return s.drained() })
			s.wantAccounts(want, 1)
			if got := s.waiting(); got != eventsOf(want) {
				t.Errorf("%d events, want %d", got, eventsOf(want))
			}
			if lost := !s.applied(victim); lost != step.lost {
				t.Errorf("lost: %t, and the documentation says %t", lost, step.lost)
			}
		})
	}
}

// drained reports whether every entry of the input streams was read and acknowledged.
func (s *service) drained() bool {
	s.t.Helper()
	return s.isRead("orders", "billing")
}

// isRead reports the same for any streams and their group.
func (s *service) isRead(name, group string) bool {
	s.t.Helper()
	for _, key := range s.streams(name) {
		groups, err := s.client.XInfoGroups(s.t.Context(), key).Result()
		if err != nil || len(groups) != 1 || groups[0].Name != group {
			return false
		}
		last, err := s.client.XRevRangeN(s.t.Context(), key, "+", "-", 1).Result()
		redistest.Must(s.t, err)
		if groups[0].Pending > 0 || len(last) > 0 && groups[0].LastDeliveredID != last[0].ID {
			return false
		}
	}
	return true
}
