package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

const (
	dialTimeout = 5 * time.Second
	// poolSize has room for a worker's blocking reads and for its concurrent commits.
	poolSize = 96
)

// server is the address of Redis. It is passed to the workers, together with the routes.
type server struct {
	Addrs    []string `json:"addrs"`
	Cluster  bool     `json:"cluster"`
	Username string   `json:"username"`
	Password string   `json:"password"`
	DB       int      `json:"db"`
	TLS      bool     `json:"tls"`
	TLSName  string   `json:"tls_name"`
	Insecure bool     `json:"insecure"`

	Routes map[string]string `json:"routes"` // from a node's address to the proxy before it
}

// parseServer parses the --redis flag: addresses, or a URL.
func parseServer(text string) (server, error) {
	if strings.Contains(text, "://") {
		return parseURL(text)
	}
	var s server
	for addr := range strings.SplitSeq(text, ",") {
		addr = strings.TrimSpace(addr)
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
			return server{}, fmt.Errorf("%q is not an address; use host:port", addr)
		}
		s.Addrs = append(s.Addrs, addr)
	}
	return s, nil
}

func parseURL(text string) (server, error) {
	opts, err := redis.ParseURL(text)
	if wrong, ok := errors.AsType[*url.Error](err); ok {
		err = wrong.Err // without the URL, which may contain a password
	}
	if err != nil {
		return server{}, err
	}
	if opts.Network != "tcp" {
		return server{}, errors.New("only redis:// and rediss:// are supported")
	}
	s := server{Addrs: []string{opts.Addr}, Username: opts.Username, Password: opts.Password, DB: opts.DB}
	if opts.TLSConfig != nil {
		s.TLS, s.TLSName, s.Insecure = true, opts.TLSConfig.ServerName, opts.TLSConfig.InsecureSkipVerify
	}
	return s, nil
}

// tlsConfig returns nil for a server without TLS.
func (s server) tlsConfig() *tls.Config {
	if !s.TLS {
		return nil
	}
	return &tls.Config{
		ServerName: s.TLSName, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: s.Insecure, //nolint:gosec // the user's URL says so
	}
}

// connect returns a client, which reaches nodes through their proxies if there are routes.
func (s server) connect() redis.UniversalClient { return s.connectAs(poolSize) }

// connectAs is connect with a given pool size.
func (s server) connectAs(poolSize int) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: s.Addrs, IsClusterMode: s.Cluster, Username: s.Username, Password: s.Password, DB: s.DB, PoolSize: poolSize, Dialer: s.dialer(),
	})
}

// dialer returns a dialer that connects to the proxy if there is one. The proxy itself uses TLS to the server.
func (s server) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := redis.NewDialer(&redis.Options{DialTimeout: dialTimeout})
	direct := redis.NewDialer(&redis.Options{DialTimeout: dialTimeout, TLSConfig: s.tlsConfig()})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if proxy, ok := s.Routes[addr]; ok {
			return plain(ctx, network, proxy)
		}
		return direct(ctx, network, addr)
	}
}

// reach returns the server that a value of --redis names, when one of its addresses replies.
func reach(ctx context.Context, text string, change ...func(*server)) (server, error) {
	s, err := parseServer(text)
	for _, f := range change {
		f(&s)
	}
	if err == nil {
		s, err = s.probe(ctx)
	}
	if err != nil {
		return s, usageError{fmt.Errorf("--redis: %w", err)}
	}
	return s, nil
}

// probe finds an address that replies, and checks whether it belongs to a cluster.
func (s server) probe(ctx context.Context) (server, error) {
	var errs []error
	for i, addr := range s.Addrs {
		cluster, err := s.ask(ctx, addr)
		if err != nil {
			errs = append(errs, fmt.Errorf("the Redis at %s: %w", addr, err))
			continue
		}
		s.Cluster = cluster
		s.Addrs = slices.Concat(s.Addrs[i:], s.Addrs[:i]) // the first that replies
		switch {
		case cluster && s.DB != 0:
			return s, fmt.Errorf("the Redis at %s is a cluster, which has no database %d", addr, s.DB)
		case !cluster && len(s.Addrs) > 1:
			return s, fmt.Errorf("the Redis at %s is not a cluster; use one address", addr)
		}
		return s, nil
	}
	return s, errors.Join(errs...)
}

func (s server) ask(ctx context.Context, addr string) (cluster bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	client := redis.NewClient(&redis.Options{
		Addr: addr, Username: s.Username, Password: s.Password, Dialer: s.dialer(),
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
	defer client.Close()
	if err := client.Time(ctx).Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") { // the users of docs/acl.md may run TIME but not PING
		return false, err
	}
	info, err := client.Info(ctx, "cluster").Result()
	if redis.HasErrorPrefix(err, "NOPERM") {
		return client.ClusterSlots(ctx).Err() == nil, nil //nolint:staticcheck // CLUSTER SHARDS is neither granted nor known before 7.0
	}
	if _, refused := errors.AsType[redis.Error](err); refused { // a server that denies INFO counts as no cluster
		return false, nil
	}
	return strings.Contains(info, "cluster_enabled:1"), err
}

// nodes lists the addresses that clients dial.
func (s server) nodes(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	addrs := slices.Clone(s.Addrs)
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return addrs, nil
	}
	var mu sync.Mutex
	err := cluster.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		addrs = append(addrs, node.Options().Addr)
		return nil
	})
	slices.Sort(addrs)
	return slices.Compact(addrs), err
}

// eachMaster calls f for every master of a cluster, or for the single server.
func eachMaster(ctx context.Context, client redis.UniversalClient, f func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return f(ctx, node) })
	}
	return f(ctx, client)
}

// embed starts a server in this process.
func embed() (s server, stop func(), err error) {
	embedded := miniredis.NewMiniRedis()
	if err := embedded.StartAddr("127.0.0.1:0"); err != nil {
		return server{}, nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	return server{Addrs: []string{embedded.Addr()}}, embedded.Close, nil
}
