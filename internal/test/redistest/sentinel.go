package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	sentinels = 3
	quorum    = 2
)

// MasterName is the name by which sentinels know their master.
const MasterName = "luatx"

// SentinelGroup is a master with a replica, watched by three sentinels with a quorum of two. A master that is silent for
// 3 s is replaced: sooner, a busy machine would replace one that is well.
type SentinelGroup struct {
	Servers   []*Server // at first the master, then the replica
	Sentinels []*Server
}

// Sentinel starts a sentinel group for this test; it ends with the test. The options are those of master and replica.
func Sentinel(t testing.TB, opts ...Option) *SentinelGroup {
	t.Helper()
	ownServers(t)
	master, replica := WithReplica(t, opts...)
	g := &SentinelGroup{Servers: []*Server{master, replica}}
	for range sentinels {
		g.Sentinels = append(g.Sentinels, start(t, sentinelMode(), Config(
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", MasterName, master.port, quorum),
			"sentinel down-after-milliseconds "+MasterName+" 3000",
			"sentinel failover-timeout "+MasterName+" 5000",
		)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	Must(t, g.waitReady(ctx))
	return g
}

// waitReady waits until every sentinel knows the replica and the other sentinels.
func (g *SentinelGroup) waitReady(ctx context.Context) error {
	return parallel(len(g.Sentinels), func(i int) error {
		return poll(ctx, 4*pollEvery, func() error {
			for list, want := range map[string]int{"REPLICAS": 1, "SENTINELS": sentinels - 1} {
				known, err := g.Sentinels[i].do(ctx, "SENTINEL", list, MasterName).Slice()
				if err != nil {
					return err
				}
				if len(known) != want {
					return fmt.Errorf("sentinel %s knows %d %s, want %d", g.Sentinels[i].addr, len(known), list, want)
				}
			}
			return nil
		})
	})
}

// Options are the options of a failover client.
func (g *SentinelGroup) Options() *redis.FailoverOptions {
	opts := &redis.FailoverOptions{MasterName: MasterName}
	for _, sentinel := range g.Sentinels {
		opts.SentinelAddrs = append(opts.SentinelAddrs, sentinel.addr)
	}
	return opts
}

// Client returns a new failover client, its options changed by the functions given; it is closed when the test ends.
func (g *SentinelGroup) Client(t testing.TB, change ...func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	opts := g.Options()
	login(&opts.Username, &opts.Password)
	for _, f := range change {
		f(opts)
	}
	return closed(t, redis.NewFailoverClient(opts))
}

// Master returns the server that most sentinels call the master.
func (g *SentinelGroup) Master(ctx context.Context) (*Server, error) {
	votes := map[*Server]int{}
	for _, sentinel := range g.Sentinels {
		addr, err := sentinel.do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName).StringSlice()
		if err != nil || len(addr) != 2 { // one that is down has no vote
			continue
		}
		for _, s := range g.Servers {
			if addr[1] == fmt.Sprint(s.port) {
				votes[s]++
			}
		}
	}
	for s, n := range votes {
		if n >= quorum {
			return s, nil
		}
	}
	return nil, errors.New("the sentinels do not agree on a master")
}

// WaitMaster waits until the sentinels agree on a master other than the one given, which knows of its role, and returns
// it.
func (g *SentinelGroup) WaitMaster(ctx context.Context, not *Server) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var master *Server
	err := poll(ctx, 4*pollEvery, func() (err error) {
		if master, err = g.Master(ctx); err != nil {
			return err
		}
		if master == not {
			return fmt.Errorf("%s is still the master", not.addr)
		}
		role, err := master.do(ctx, "ROLE").Slice()
		if err == nil && (len(role) == 0 || role[0] != "master") {
			err = fmt.Errorf("%s is not the master yet", master.addr)
		}
		return err
	})
	return master, err
}

// Failover makes a sentinel promote the replica, as an operator would; WaitMaster waits for it.
func (g *SentinelGroup) Failover(ctx context.Context) error {
	return poll(ctx, 20*pollEvery, func() error { // refused while an earlier one is not over
		return g.Sentinels[0].do(ctx, "SENTINEL", "FAILOVER", MasterName).Err()
	})
}

// Rejoin makes a former master a replica of its successor, as the sentinels would after a while; it is started where it
// was killed. It returns when the replica is in sync and every sentinel counts on it.
func (g *SentinelGroup) Rejoin(ctx context.Context, server, successor *Server) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := server.startAgain(ctx); err != nil {
		return err
	}
	if err := server.do(ctx, "REPLICAOF", "127.0.0.1", successor.port).Err(); err != nil {
		return err
	}
	if err := poll(ctx, pollEvery, func() error { return server.inSync(ctx) }); err != nil {
		return err
	}
	return parallel(len(g.Sentinels), func(i int) error {
		return poll(ctx, 4*pollEvery, func() error { return g.Sentinels[i].counts(ctx, server) })
	})
}

// counts checks that the sentinel takes the server for a replica that it could promote.
func (s *Server) counts(ctx context.Context, replica *Server) error {
	list, err := s.do(ctx, "SENTINEL", "REPLICAS", MasterName).Slice()
	if err != nil {
		return err
	}
	text := fmt.Sprint(list)
	if len(list) != 1 || !strings.Contains(text, "flags slave ") || !strings.Contains(text, "master-link-status ok") || !strings.Contains(text, fmt.Sprint(replica.port)) {
		return fmt.Errorf("sentinel %s does not see replica %s as ready: %s", s.addr, replica.addr, text)
	}
	return nil
}
