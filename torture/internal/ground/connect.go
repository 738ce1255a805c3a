package ground

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Connect returns a client of the servers, through the proxies if there are any.
func (p Plan) Connect() redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: p.Addrs, IsClusterMode: p.Cluster, Dialer: p.dial,
		PoolSize: 64, ReadTimeout: time.Second, DialTimeout: time.Second, ContextTimeoutEnabled: true,
	})
}

// ConnectBroker returns a client of the server to which events are published. No fault affects that server.
func (p Plan) ConnectBroker() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: p.Broker, PoolSize: 32})
}

// Past returns the plan without the proxies.
func (p Plan) Past() Plan {
	p.Routes = nil
	return p
}

func (p Plan) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if proxy, ok := p.Routes[addr]; ok {
		addr = proxy
	}
	return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, addr)
}
