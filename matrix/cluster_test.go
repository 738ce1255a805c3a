package matrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

const (
	masters     = 3
	slots       = 16384
	nodeTimeout = 2 * time.Second
	settleTime  = 60 * time.Second
)

// cluster is three masters with a replica each, in containers on a network of their own.
type cluster struct {
	t       *testing.T
	docker  client.APIClient
	network string // id of the network
	nodes   []*node
}

type node struct {
	container string // id of the container
	ip        netip.Addr
	*redis.Client
}

// startCluster starts a cluster of an image's servers, which stops when the test ends.
func startCluster(t *testing.T, image string) *cluster {
	t.Helper()
	ctx := t.Context()
	provider, err := testcontainers.NewDockerProvider()
	must(t, err)
	t.Cleanup(func() { _ = provider.Close() })
	subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(100 + rand.IntN(100)), byte(rand.IntN(250)), 0}), 24)
	net, err := tcnetwork.New(ctx, tcnetwork.WithIPAM(&network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet}}}))
	must(t, err)
	testcontainers.CleanupNetwork(t, net)
	c := &cluster{t: t, docker: provider.Client(), network: net.ID}
	ip := subnet.Addr().Next() // the address of the gateway
	for range 2 * masters {
		ip = ip.Next()
		c.start(ctx, image, net.Name, ip)
	}
	c.join(ctx)
	return c
}

func (c *cluster) start(ctx context.Context, image, net string, ip netip.Addr) {
	c.t.Helper()
	container, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		ContainerRequest: testcontainers.ContainerRequest{
			Image: image, Networks: []string{net},
			Cmd: []string{
				server(image), "--cluster-enabled", "yes", "--cluster-node-timeout", fmt.Sprint(nodeTimeout.Milliseconds()),
				"--cluster-replica-validity-factor", "0", "--save", "",
			},
			EndpointSettingsModifier: func(settings map[string]*network.EndpointSettings) {
				settings[net] = endpoint(ip)
			},
		},
		Started: true,
	})
	testcontainers.CleanupContainer(c.t, container)
	must(c.t, err)
	n := &node{container: container.GetContainerID(), ip: ip, Client: redis.NewClient(&redis.Options{
		Addr: ip.String() + ":6379", MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second, DialerRetries: 1,
	})}
	c.t.Cleanup(func() { _ = n.Close() })
	c.nodes = append(c.nodes, n)
}

// endpoint returns the network settings of a container, with a fixed address to which it can return.
func endpoint(ip netip.Addr) *network.EndpointSettings {
	return &network.EndpointSettings{IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: ip}}
}

// join creates a cluster of the nodes. The first ones are masters, and each of the others is the replica of one.
func (c *cluster) join(ctx context.Context) {
	c.t.Helper()
	for _, n := range c.nodes {
		c.eventually(ctx, n.ip.String()+" to answer", func() error { return n.Ping(ctx).Err() })
	}
	for i, n := range c.nodes[:masters] {
		must(c.t, n.ClusterAddSlots(ctx, slotsOf(i)...).Err())
		must(c.t, n.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
	}
	for _, n := range c.nodes[1:] {
		must(c.t, c.nodes[0].ClusterMeet(ctx, n.ip.String(), "6379").Err())
	}
	for _, n := range c.nodes {
		c.eventually(ctx, "all to know each other", func() error {
			text, err := n.ClusterNodes(ctx).Result()
			if err == nil && (strings.Count(text, " connected") != len(c.nodes) || strings.Contains(text, "handshake")) {
				err = errors.New(text)
			}
			return err
		})
	}
	for i, n := range c.nodes[masters:] {
		id, err := c.nodes[i].Do(ctx, "CLUSTER", "MYID").Text()
		must(c.t, err)
		must(c.t, n.ClusterReplicate(ctx, id).Err())
	}
	c.settled(ctx)
}

// settled waits until all nodes consider the cluster healthy and every replica follows its master.
func (c *cluster) settled(ctx context.Context) {
	c.t.Helper()
	for _, n := range c.nodes {
		c.eventually(ctx, "the cluster to be in order", func() error {
			info, err := n.ClusterInfo(ctx).Result()
			if err == nil && !strings.Contains(info, "cluster_state:ok") {
				err = errors.New(info)
			}
			if err != nil {
				return err
			}
			roles, err := n.Info(ctx, "replication").Result()
			if err == nil && strings.Contains(roles, "role:slave") && !strings.Contains(roles, "master_link_status:up") {
				err = errors.New(roles)
			}
			return err
		})
	}
	c.eventually(ctx, "three masters", func() error {
		if n := len(c.masters(ctx)); n != masters {
			return fmt.Errorf("%d masters with slots", n)
		}
		return nil
	})
}

// masters returns the nodes that consider themselves masters and serve slots.
func (c *cluster) masters(ctx context.Context) []*node {
	var found []*node
	for _, n := range c.nodes {
		text, err := n.ClusterNodes(ctx).Result()
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) > 8 && strings.Contains(f[2], "myself") && strings.Contains(f[2], "master") {
				found = append(found, n)
			}
		}
	}
	return found
}

// cut disconnects a node from the network, and heal reconnects it.
func (c *cluster) cut(ctx context.Context, n *node) {
	c.t.Helper()
	_, err := c.docker.NetworkDisconnect(ctx, c.network, client.NetworkDisconnectOptions{Container: n.container, Force: true})
	must(c.t, err)
}

func (c *cluster) heal(ctx context.Context, n *node) {
	c.t.Helper()
	_, err := c.docker.NetworkConnect(ctx, c.network, client.NetworkConnectOptions{Container: n.container, EndpointConfig: endpoint(n.ip)})
	must(c.t, err)
}

func (c *cluster) client() *redis.ClusterClient {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.ip.String()+":6379")
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ReadTimeout: time.Second, DialTimeout: time.Second})
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// eventually waits until check returns nil.
func (c *cluster) eventually(ctx context.Context, what string, check func() error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("still waiting for %s: %v", what, err)
		case <-ticker.C:
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// slotsOf returns the initial slots of a master.
func slotsOf(i int) []int {
	var list []int
	for n := i * slots / masters; n < (i+1)*slots/masters; n++ {
		list = append(list, n)
	}
	return list
}
