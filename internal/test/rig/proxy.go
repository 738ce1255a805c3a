package rig

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
)

// ShortReads makes a client give up on a reply after half a second.
func ShortReads(o *redis.Options) { o.ReadTimeout = 500 * time.Millisecond }

// Proxied starts a server and a proxy in front of it. It returns a client through the proxy and one that bypasses it.
func Proxied(t testing.TB) (proxy *respproxy.Proxy, through, past *redis.Client) {
	t.Helper()
	server := redistest.Single(t, redistest.Own())
	proxy = redistest.Proxy(t, server.Addr())
	return proxy, redistest.Client(t, proxy.Addr(), ShortReads), server.Client(t)
}

// Calls returns how often a server has run a command.
func Calls(t testing.TB, client *redis.Client, command string) int {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	redistest.Must(t, err)
	_, stats, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
	calls, _, _ := strings.Cut(stats, ",")
	n, _ := strconv.Atoi(calls)
	return n
}

// Executed returns the number of EVALSHAs that a server has run.
func Executed(t testing.TB, client *redis.Client) int {
	t.Helper()
	return Calls(t, client, "evalsha")
}

// ProxiedCluster returns a client of the shared cluster whose connections go through proxies, and a function that returns
// the commands that passed.
func ProxiedCluster(t testing.TB) (*redis.ClusterClient, func() [][]string) {
	t.Helper()
	cluster := redistest.SharedCluster(t)
	proxies := make(map[string]*respproxy.Proxy)
	for _, addr := range cluster.Addrs() {
		proxies[addr] = redistest.Proxy(t, addr)
	}
	client := cluster.Client(t, func(o *redis.ClusterOptions) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			if p, ok := proxies[addr]; ok {
				addr = p.Addr()
			}
			return d.DialContext(ctx, network, addr)
		}
	})
	topology := func(cmd []string) bool {
		return !slices.Contains([]string{"cluster", "command", "readonly"}, strings.ToLower(cmd[0]))
	}
	return client, func() [][]string {
		var all [][]string
		for _, p := range proxies {
			all = append(all, p.Commands(respproxy.Work, topology)...)
		}
		return all
	}
}

// Masters returns the master that serves a slot of a cluster, and another one.
func Masters(t testing.TB, cluster *redistest.Cluster3, slot int) (source, target *redistest.Server) {
	t.Helper()
	source, err := cluster.NodeForSlot(t.Context(), slot)
	redistest.Must(t, err)
	masters, err := cluster.Masters(t.Context())
	redistest.Must(t, err)
	return source, masters[slices.IndexFunc(masters, func(s *redistest.Server) bool { return s != source })]
}
