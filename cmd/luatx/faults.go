package main

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/respproxy"
)

// dropShare is the share of replies to commits that are lost.
const dropShare = 0.01

// faults are proxies between the workers and the servers. Each proxy executes every request, and sometimes cuts the
// connection instead of returning the reply. Pipeline mode commits by EXEC, and scripted mode by EVALSHA. Both lose the
// same share.
type faults struct {
	routes  map[string]string
	proxies []*respproxy.Proxy
	tunnels []*tunnel
	dropped atomic.Int64
}

func startFaults(ctx context.Context, s server, client redis.UniversalClient, seed uint64) (*faults, error) {
	nodes, err := s.nodes(ctx, client)
	if err != nil {
		return nil, err
	}
	f := &faults{routes: make(map[string]string, len(nodes))}
	for i, node := range nodes {
		if err := f.add(node, s.tlsConfig(), seed+uint64(i)); err != nil { //nolint:gosec // an index is never negative
			return nil, errors.Join(err, f.close())
		}
	}
	return f, nil
}

// add puts a proxy before a node.
func (f *faults) add(node string, secure *tls.Config, seed uint64) error {
	target := node
	if secure != nil {
		t, err := startTunnel(node, secure)
		if err != nil {
			return err
		}
		f.tunnels = append(f.tunnels, t)
		target = t.addr()
	}
	proxy, err := respproxy.New(target)
	if err != nil {
		return err
	}
	f.proxies = append(f.proxies, proxy)
	f.routes[node] = proxy.Addr()
	commits := respproxy.Command("EVALSHA", "EXEC")
	draw := rand.New(rand.NewPCG(seed, 0x64726f70))
	proxy.On(func(cmd []string) respproxy.Action { // called for one request at a time
		if !commits(cmd) || draw.Float64() >= dropShare {
			return respproxy.Pass()
		}
		f.dropped.Add(1)
		return respproxy.CutReply()
	})
	return nil
}

func (f *faults) close() error {
	var errs []error
	for _, proxy := range f.proxies {
		errs = append(errs, proxy.Close())
	}
	for _, t := range f.tunnels {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}
