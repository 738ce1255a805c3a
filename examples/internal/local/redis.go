// Package local provides the Redis of an example. Your own service has its own client instead.
package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// EnvAddrs is the environment variable with the addresses of servers, separated by commas, to use instead of one inside the
// process. Several addresses are a cluster.
const EnvAddrs = "REDIS_ADDRS"

// Redis is a server with a namespace for the example.
type Redis struct {
	// Client is a client of the server.
	Client redis.UniversalClient
	// Namespace is the prefix of all keys of the example. Close deletes them.
	Namespace string

	embedded *miniredis.Miniredis
}

// Main runs an example, prints its error, and returns the exit status of the program.
func Main(name string, run func(ctx context.Context, out io.Writer) error) int {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// Open returns the servers at addrs, or those of EnvAddrs if addrs is empty. Without either, it starts a Redis inside this
// process.
func Open(name, addrs string) (*Redis, error) {
	r := &Redis{Namespace: name + "-" + strings.ToLower(rand.Text()[:8])}
	addrs = cmp.Or(addrs, os.Getenv(EnvAddrs))
	if addrs == "" {
		r.embedded = miniredis.NewMiniRedis()
		if err := r.embedded.StartAddr("127.0.0.1:0"); err != nil {
			return nil, err
		}
		addrs = r.embedded.Addr()
		slog.SetLogLoggerLevel(slog.LevelError) // luatx warns about settings that this server cannot report
	}
	r.Client = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(addrs, ",")})
	return r, nil
}

// Close deletes the example's keys on an external server, and closes the client.
func (r *Redis) Close() error {
	var err error
	if r.embedded == nil {
		err = r.clean(context.Background())
	}
	err = errors.Join(err, r.Client.Close())
	if r.embedded != nil {
		r.embedded.Close()
	}
	return err
}

func (r *Redis) clean(ctx context.Context) error {
	sweep := func(ctx context.Context, node *redis.Client) error {
		for iter := node.Scan(ctx, 0, r.Namespace+":*", 1000).Iterator(); ; {
			if !iter.Next(ctx) {
				return iter.Err()
			}
			if err := r.Client.Unlink(ctx, iter.Val()).Err(); err != nil {
				return err
			}
		}
	}
	switch client := r.Client.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, sweep)
	case *redis.Client:
		return sweep(ctx, client)
	}
	return nil
}
