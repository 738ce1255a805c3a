// Package site is the servers of a run, and the proxies before them.
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

// Config says which servers there are.
type Config struct {
	Cluster bool // three masters with a replica each; else there is one server, with its append-only file on disk before it answers
	Wait    int  // replicas that commits and publishes wait for
	// Disk is the directory under which the one server gets a file system of its own, which can be filled: root alone can
	// have one. Defaults to none.
	Disk string
}

// Site is the servers of a run.
type Site struct {
	Plan    ground.Plan
	Single  *redistest.Server   // or nil
	Cluster *redistest.Cluster3 // or nil
	Proxies []*respproxy.Proxy
	Disk    *Disk // nil: none of its own

	broker *redistest.Server
}

// Open starts the servers and opens the accounts. Close ends all.
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

// fund opens the accounts, and the keys of transactions that must fail, on masters and replicas.
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

// Doom writes what transactions find that must fail.
func Doom(ctx context.Context, pipe redis.Pipeliner, b ground.Branch) {
	text, list, set, zset, stream, _ := b.Doomed()
	pipe.Set(ctx, text, "text", 0)
	pipe.RPush(ctx, list, "one", "two")
	pipe.SAdd(ctx, set, "one", "two")
	pipe.ZAdd(ctx, zset, redis.Z{Score: 1, Member: "one"}, redis.Z{Score: 2, Member: "two"})
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, ID: "1-1", Values: []any{"id", "one"}})
}

// replicate waits until the replica of a key's master has what was written.
func (s *Site) replicate(ctx context.Context, client redis.UniversalClient, key string) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return err
	}
	conn := node.Conn() // WAIT is about what its connection has written
	defer func() { _ = conn.Close() }()
	pipe := conn.Pipeline()
	pipe.Persist(ctx, key)
	pipe.HSet(ctx, key, ground.Account(0), ground.Opening)
	reached := pipe.Do(ctx, "WAIT", 1, 5000)
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	if n, err := reached.Int(); err != nil || n < 1 {
		return fmt.Errorf("%d replicas have the accounts: %w", n, err)
	}
	return nil
}

// Version is that of the servers.
func (s *Site) Version() string { return s.broker.Binary().Version }

// Close ends everything.
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

// Admin returns a client of one server, for one connection that is kept: it works where others are turned away.
func Admin(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 1, MinIdleConns: 1, MaxRetries: -1, ReadTimeout: 2 * time.Second, DialTimeout: time.Second, DialerRetries: 1,
		ConnMaxIdleTime: -1,
	})
}
