package commit

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
)

// kind is a kind of deployment.
type kind string

const (
	plain    kind = "one server"
	everysec kind = "AOF everysec"
	always   kind = "AOF always"
	masters  kind = "3 masters"
)

var config = map[kind][]string{
	everysec: {"appendonly yes", "appendfsync everysec", "auto-aof-rewrite-percentage 0"},
	always:   {"appendonly yes", "appendfsync always", "auto-aof-rewrite-percentage 0"},
}

// servers starts each deployment when it is first needed.
type servers struct {
	running map[kind]*deployment
}

type deployment struct {
	addrs   []string
	cluster bool
	close   func() error
}

func (s *servers) get(ctx context.Context, k kind) (*deployment, error) {
	if d := s.running[k]; d != nil {
		return d, nil
	}
	start := startServer
	if k == masters {
		start = startCluster
	}
	d, err := start(ctx, k)
	if err != nil {
		return nil, err
	}
	if s.running == nil {
		s.running = map[kind]*deployment{}
	}
	s.running[k] = d
	return d, nil
}

func (s *servers) close() error {
	var errs []error
	for _, d := range s.running {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}

func startServer(ctx context.Context, k kind) (*deployment, error) {
	server, err := redistest.Start(ctx, redistest.Config(config[k]...))
	if err != nil {
		return nil, err
	}
	return &deployment{addrs: []string{server.Addr()}, close: server.Close}, nil
}

// startCluster starts masters without replicas, whose CPU time would not be the way's.
func startCluster(ctx context.Context, _ kind) (*deployment, error) {
	cluster, err := redistest.StartCluster(ctx)
	if err != nil {
		return nil, err
	}
	d := &deployment{cluster: true, close: cluster.Close}
	if err := d.withoutReplicas(ctx, cluster); err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	return d, nil
}

// withoutReplicas stops the replicas and makes the masters forget them, because clients would try to reach them.
func (d *deployment) withoutReplicas(ctx context.Context, cluster *redistest.Cluster3) error {
	masters, err := cluster.Masters(ctx)
	if err != nil {
		return err
	}
	var gone []string
	for _, master := range masters {
		d.addrs = append(d.addrs, master.Addr())
		replica, err := cluster.ReplicaOf(ctx, master)
		if err != nil {
			return err
		}
		id, err := ask(ctx, replica, "CLUSTER", "MYID")
		if err := errors.Join(err, replica.Kill()); err != nil {
			return err
		}
		gone = append(gone, id)
	}
	for _, master := range masters {
		for _, id := range gone {
			if _, err := ask(ctx, master, "CLUSTER", "FORGET", id); err != nil {
				return err
			}
		}
	}
	return nil
}

func ask(ctx context.Context, server *redistest.Server, args ...any) (string, error) {
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	return client.Do(ctx, args...).Text()
}

// client returns a client with the given round trip.
func (d *deployment) client(callers int, roundTrip time.Duration) redis.UniversalClient {
	o := &redis.UniversalOptions{Addrs: d.addrs, IsClusterMode: d.cluster, PoolSize: callers + 8}
	if roundTrip > 0 {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &distant{Conn: conn, by: roundTrip}, nil
		}
	}
	return redis.NewUniversalClient(o)
}

// empty deletes all keys.
func (d *deployment) empty(ctx context.Context, client redis.UniversalClient) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return node.FlushAll(ctx).Err() })
	}
	return client.FlushAll(ctx).Err()
}

// distant is a connection with delayed replies. A proxy would use CPU time of the shared machine for every round trip, and
// so favor ways with few round trips.
type distant struct {
	net.Conn
	by    time.Duration
	asked bool // since the last reply; a connection has one user at a time
}

func (d *distant) Write(b []byte) (int, error) {
	d.asked = true
	return d.Conn.Write(b)
}

func (d *distant) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if d.asked {
		d.asked = false
		<-time.After(d.by)
	}
	return n, err
}

// SyscallConn lets the client check the connection, as it does with others.
func (d *distant) SyscallConn() (syscall.RawConn, error) {
	if conn, ok := d.Conn.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
