package stream_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
	"github.com/luatx/luatx/stream"
)

// patiently makes a client wait for late replies.
func patiently(o *redis.Options) { o.ReadTimeout = time.Hour }

// alone answers that the member is the only one of its group.
func alone(cmd []string) any { return []any{cmd[5]} }

// free answers requests of a lease that has just become free: a member that takes it beyond its share does not get it.
func free(cmd []string) any {
	if cmd[4] == "take" && cmd[7] != "0" {
		return 0
	}
	return 1
}

// partitions answers a member of a group. Unless a test says otherwise, it is the only one, gets each lease and finds nothing to read.
func partitions(say map[string]any) *scripted.Group {
	g := &scripted.Group{Say: map[string]any{
		"members": alone, "lease": free, "partition": []any{"none", "1-0"}, "xread": scripted.Late(time.Second, nil),
	}}
	maps.Copy(g.Say, say)
	return g
}

// say changes an answer.
func say(g *scripted.Group, command string, answer any) {
	g.Change(func() {
		g.Say = maps.Clone(g.Say)
		g.Say[command] = answer
	})
}

// inBubbleMember runs a test with a member, whose leases last 9 s. It ends the member, and waits for it.
func inBubbleMember(t *testing.T, n int, g *scripted.Group, cfg stream.PartitionedConfig, test func(t *testing.T, s subscribed), options ...func(*redis.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, logs := scripted.New(g.Answer, "deadletter", "lease", "members", "partition", "process"), &rig.Lines{}
		cfg.Stream, cfg.Group, cfg.Logger, cfg.Lease = "s", "g", logs.Logger(), 9*time.Second
		sub, err := stream.NewPartitionedSubscriber(server.Client(t, append(options, patiently)...), luatx.Partitions(n), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		messages, err := sub.Subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s := subscribed{server, nil, messages, logs, func() {
			cancel()
			for range messages { // until it ends
			}
		}}
		test(t, s)
		s.stop()
	})
}

// bids returns the requests of leases: when, what, and for how long a lease that is taken must have been free, in ms.
func (s subscribed) bids(what string) (list []string) {
	for _, h := range s.Heard("lease") {
		if h.Cmd[4] == what {
			list = append(list, fmt.Sprint(h.At, " ", h.Cmd[7]))
		}
	}
	return list
}

func (s subscribed) wantTakes(t *testing.T, want ...string) {
	t.Helper()
	if got := s.bids("take"); !slices.Equal(got, want) {
		t.Errorf("leases are taken at %q, want %q", got, want)
	}
}

func TestMemberTakesItsShareAtOnceAndSendsThreeBeatsALease(t *testing.T) {
	t.Parallel()
	inBubbleMember(t, 3, partitions(nil), stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		time.Sleep(10 * time.Second)
		s.wantTakes(t, "0s 0", "0s 0", "0s 0")
		if got, want := s.Times("members"), []time.Duration{0, 3 * time.Second, 6 * time.Second, 9 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("beats at %v, want %v", got, want)
		}
		s.stop()
		if text := s.logs.String(); text != "" {
			t.Errorf("logged:\n%s", text)
		}
		if n := len(s.bids("free")); n != 3 {
			t.Errorf("%d leases are freed", n)
		}
	})
}

// TestRankOfAMemberIsThatOfItsName checks the rank in the list that the server returns, which is in the order of the beats.
func TestRankOfAMemberIsThatOfItsName(t *testing.T) {
	t.Parallel()
	unsorted := func(cmd []string) any { return []any{"~last", "!first", cmd[5]} }
	inBubbleMember(t, 5, partitions(map[string]any{"members": unsorted}), stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		time.Sleep(8 * time.Second)
		s.wantTakes(t, "0s 0", "0s 0")
	})
}

func TestPartitionThatStaysFreeIsTakenBeyondTheShare(t *testing.T) {
	t.Parallel()
	two := func(cmd []string) any { return []any{cmd[5], "~other"} }
	g := partitions(map[string]any{"members": two})
	inBubbleMember(t, 2, g, stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		time.Sleep(20 * time.Second)
		s.wantTakes(t, "0s 0", "9s 18000", "18s 18000")
		say(g, "members", alone) // then it belongs to the share
		time.Sleep(20 * time.Second)
		s.wantTakes(t, "0s 0", "9s 18000", "18s 18000", "21s 0")
	})
}

func TestAttemptsToTakeALeaseCountAsPartOfTheShare(t *testing.T) {
	t.Parallel()
	two := func(cmd []string) any { return []any{cmd[5], "~other"} }
	inBubbleMember(t, 2, partitions(map[string]any{"members": two, "lease": scripted.Late(8*time.Second, 0)}), stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		time.Sleep(7 * time.Second)
		s.wantTakes(t, "0s 0")
	})
	g := partitions(map[string]any{"members": two, "lease": 0}) // attempts that fail do not count any more
	inBubbleMember(t, 2, g, stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		time.Sleep(2 * time.Second)
		say(g, "lease", free)
		time.Sleep(6 * time.Second)
		s.wantTakes(t, "0s 0", "0s 0", "3s 0")
	})
}

func TestMemberReleasesAPartitionForAMemberThatJoins(t *testing.T) {
	t.Parallel()
	g := partitions(nil)
	inBubbleMember(t, 2, g, stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		time.Sleep(4 * time.Second)
		say(g, "members", func(cmd []string) any { return []any{cmd[5], "~other"} })
		time.Sleep(16 * time.Second)
		if n := len(s.bids("free")); n != 1 {
			t.Errorf("%d leases are freed, want one", n)
		}
		takes := slices.DeleteFunc(s.bids("take"), func(bid string) bool { return strings.HasSuffix(bid, " 18000") })
		if want := []string{"0s 0", "0s 0"}; !slices.Equal(takes, want) {
			t.Errorf("leases within the share are taken at %q, want %q", takes, want)
		}
	})
}

func TestFailureAndRecoveryOfAMemberAreLogged(t *testing.T) {
	t.Parallel()
	g := partitions(nil)
	inBubbleMember(t, 1, g, stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		say(g, "members", errRefused)
		time.Sleep(7 * time.Second)
		if n := s.logs.Count("subscriber failed"); n != 1 || s.logs.Count(`operation=beat error="ERR no"`) != 1 {
			t.Errorf("logged:\n%s", s.logs)
		}
		say(g, "members", alone)
		time.Sleep(3 * time.Second)
		if n := s.logs.Count("subscriber recovered"); n != 1 || s.logs.Count("operation=beat") != 2 {
			t.Errorf("logged:\n%s", s.logs)
		}
		say(g, "members", scripted.Late(time.Second, errRefused))
		say(g, "lease", func(cmd []string) any {
			if cmd[4] == "free" {
				return errRefused
			}
			return free(cmd)
		})
		time.Sleep(2500 * time.Millisecond) // a beat is under way
		s.stop()
		name := s.Heard("members")[0].Cmd[5]
		if n := s.logs.Count("operation=beat"); n != 2 || s.logs.Count(`member not removed" stream=s group=g member=`+name+` error="ERR no"`) != 1 {
			t.Errorf("logged:\n%s", s.logs)
		}
		if n := s.logs.Count(`lease not released" stream=`); n != 1 || s.logs.Count(`error="ERR no"`) != 3 {
			t.Errorf("logged:\n%s", s.logs)
		}
	})
}

func TestFailureAndRecoveryOfTakingALeaseAreLogged(t *testing.T) {
	t.Parallel()
	g := partitions(map[string]any{"lease": errRefused})
	inBubbleMember(t, 1, g, stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
		time.Sleep(4 * time.Second)
		say(g, "lease", free)
		time.Sleep(2500 * time.Millisecond) // taken, and not yet extended
		if n := s.logs.Count("operation=lease"); n != 2 || s.logs.Count("subscriber recovered") != 1 {
			t.Errorf("logged:\n%s", s.logs)
		}
	})
}

func TestLeaseThatWasLostIsFreedOnlyIfItIsTakenAgain(t *testing.T) {
	t.Parallel()
	for again, frees := range map[bool]int{false: 0, true: 1} {
		var taken bool
		g := partitions(map[string]any{"lease": func(cmd []string) any {
			switch {
			case cmd[4] == "keep" && !taken:
				taken = true
				return 0
			case cmd[4] == "take" && taken && !again:
				return 0
			}
			return free(cmd)
		}})
		inBubbleMember(t, 1, g, stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
			time.Sleep(8 * time.Second)
			s.stop()
			if n := len(s.bids("free")); n != frees || s.logs.Count("partition lost to another member") != 1 {
				t.Errorf("%d leases are freed, want %d:\n%s", n, frees, s.logs)
			}
		})
	}
}

func TestLeaseIsFreedAfterTheReplyThatKeepsIt(t *testing.T) {
	t.Parallel()
	for reply, want := range map[int][]string{1: {"4s 0"}, 0: nil} {
		g := partitions(map[string]any{"lease": func(cmd []string) any {
			if cmd[4] == "keep" {
				return scripted.Late(time.Second, reply)(cmd)
			}
			return free(cmd)
		}})
		inBubbleMember(t, 1, g, stream.PartitionedConfig{}, func(t *testing.T, s subscribed) {
			time.Sleep(3500 * time.Millisecond)
			s.stop()
			if got := s.bids("free"); !slices.Equal(got, want) {
				t.Errorf("freed at %v, want %v", got, want)
			}
		})
	}
}

func TestMemberEndsAfterItHasLeftTheListOfProcesses(t *testing.T) {
	t.Parallel()
	slow := func(cmd []string) any {
		if slices.Contains(cmd, "leave") {
			<-time.After(500 * time.Millisecond)
		}
		return 1
	}
	g := partitions(map[string]any{"process": slow})
	inBubbleMember(t, 1, g, stream.PartitionedConfig{SubscriberConfig: stream.SubscriberConfig{Namespace: "n"}}, func(t *testing.T, s subscribed) {
		synctest.Wait()
		began := time.Now()
		s.stop()
		if took := time.Since(began); took != 1500*time.Millisecond { // with the read that is under way
			t.Errorf("ended after %v:\n%s", took, scripted.Words(s.Heard()))
		}
	})
}

func TestJoinThatFailsCanBeRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := partitions(map[string]any{"xgroup": scripted.InTurn(errRefused, scripted.Usual), "members": scripted.InTurn(errRefused, []any{"m"})})
		sub, err := stream.NewPartitionedSubscriber(scripted.New(g.Answer, "lease", "members", "partition").Client(t), luatx.Partitions(2), stream.PartitionedConfig{
			SubscriberConfig: stream.SubscriberConfig{Stream: "s", Group: "g"},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, says := range []string{"stream: make group", `stream: join group "g" of "s"`} {
			if _, err := sub.Subscribe(ctx); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "ERR no") {
				t.Errorf("error is %v, want %q", err, says)
			}
		}
		messages, err := sub.Subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sub.Subscribe(ctx); !errors.Is(err, stream.ErrSubscribed) {
			t.Errorf("error is %v", err)
		}
		cancel()
		for range messages { // until it ends
		}
	})
}
