// Package site starts the servers of a run and the proxies before them.
package site

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/torture/internal/ground"
)

// Config configures a Site.
type Config struct {
	Cluster bool // three masters with a replica each; otherwise one server that writes its append-only file to disk before it replies
	Wait    int  // replicas for which commits and publishes wait
	// Disk is the directory for a file system of the single server, which faults can fill. Only root can mount one. Defaults
	// to none.
	Disk string
}

// Site holds the servers of a run.
type Site struct {
	Plan    ground.Plan
	Single  *redistest.Server   // nil with a cluster
	Cluster *redistest.Cluster3 // nil with a single server
	Proxies []*respproxy.Proxy
	Disk    *Disk // nil if the server has no file system of its own

	broker *redistest.Server
}

// Open starts the servers and writes the initial data. Close stops them.
func Open(ctx context.Context, cfg Config) (*Site, error) {
	s := &Site{Plan: ground.Plan{
		Namespace: "torture-" + strings.ToLower(rand.Text()[:10]), Cluster: cfg.Cluster, Wait: cfg.Wait, Routes: map[string]string{},
	}}
	if err := s.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Site) open(ctx context.Context, cfg Config) (err error) {
	if s.broker, err = redistest.Start(ctx); err != nil {
		return err
	}
	s.Plan.Broker = s.broker.Addr()
	if cfg.Cluster {
		if s.Cluster, err = redistest.StartCluster(ctx, redistest.Config("repl-backlog-size 64mb", "client-output-buffer-limit replica 0 0 0")); err != nil {
			return err
		}
		s.Plan.Addrs = s.Cluster.Addrs()
	} else if err = s.openSingle(ctx, cfg.Disk); err != nil {
		return err
	}
	for _, addr := range s.Plan.Addrs {
		proxy, err := respproxy.New(addr)
		if err != nil {
			return err
		}
		s.Proxies = append(s.Proxies, proxy)
		s.Plan.Routes[addr] = proxy.Addr()
	}
	return s.fund(ctx)
}

func (s *Site) openSingle(ctx context.Context, disk string) (err error) {
	options := []redistest.Option{redistest.Config("appendonly yes", "appendfsync always")}
	if disk != "" {
		if s.Disk, err = mountDisk(ctx, disk); err != nil {
			return err
		}
		options = append(options, redistest.Config("dir "+s.Disk.dir))
	}
	if s.Single, err = redistest.Start(ctx, options...); err != nil {
		return err
	}
	s.Plan.Addrs = []string{s.Single.Addr()}
	return nil
}

// fund writes the initial balances, and the keys of transactions that must fail, to masters and replicas.
func (s *Site) fund(ctx context.Context) error {
	client := s.Plan.Past().Connect()
	defer func() { _ = client.Close() }()
	branches, err := s.Plan.Branches()
	if err != nil {
		return err
	}
	for _, b := range branches {
		pipe := client.Pipeline()
		for n := range ground.Accounts {
			pipe.HSet(ctx, b.Balances, ground.Account(n), ground.Opening)
		}
		Doom(ctx, pipe, b)
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("open the accounts: %w", err)
		}
		if err := s.replicate(ctx, client, b.Balances); err != nil {
			return err
		}
	}
	return nil
}

// Doom writes the keys of transactions that must fail.
func Doom(ctx context.Context, pipe redis.Pipeliner, b ground.Branch) {
	text, list, set, zset, stream, _ := b.Doomed()
	pipe.Set(ctx, text, "text", 0)
	pipe.RPush(ctx, list, "one", "two")
	pipe.SAdd(ctx, set, "one", "two")
	pipe.ZAdd(ctx, zset, redis.Z{Score: 1, Member: "one"}, redis.Z{Score: 2, Member: "two"})
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, ID: "1-1", Values: []any{"id", "one"}})
}

// replicate waits until the replica of a key's master has the writes.
func (s *Site) replicate(ctx context.Context, client redis.UniversalClient, key string) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return err
	}
	conn := node.Conn() // WAIT covers the writes of its own connection
	defer func() { _ = conn.Close() }()
	pipe := conn.Pipeline()
	pipe.Persist(ctx, key)
	pipe.HSet(ctx, key, ground.Account(0), ground.Opening)
	reached := pipe.Do(ctx, "WAIT", 1, 5000)
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	if n, err := reached.Int(); err != nil || n < 1 {
		return fmt.Errorf("%d replicas have received the accounts: %w", n, err)
	}
	return nil
}

// Version returns the version of the servers.
func (s *Site) Version() string { return s.broker.Binary().Version }

// Close stops all servers and proxies.
func (s *Site) Close() error {
	var errs []error
	for _, proxy := range s.Proxies {
		errs = append(errs, proxy.Close())
	}
	if s.Cluster != nil {
		errs = append(errs, s.Cluster.Close())
	}
	if s.Single != nil {
		errs = append(errs, s.Single.Close())
	}
	if s.Disk != nil {
		errs = append(errs, s.Disk.unmount())
	}
	if s.broker != nil {
		errs = append(errs, s.broker.Close())
	}
	return errors.Join(errs...)
}

// Admin returns a client that keeps one connection to a server, so that it works while the server rejects new connections.
func Admin(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 1, MinIdleConns: 1, MaxRetries: -1, ReadTimeout: 2 * time.Second, DialTimeout: time.Second, DialerRetries: 1,
		ConnMaxIdleTime: -1,
	})
}
