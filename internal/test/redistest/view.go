package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const askTimeout = time.Second

// do runs one command on a connection of its own, without retries: for setting up and looking, not for tests.
func (s *Server) do(ctx context.Context, args ...any) *redis.Cmd {
	client := redis.NewClient(&redis.Options{
		Addr: s.addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		DialTimeout: askTimeout, ReadTimeout: 10 * askTimeout,
	})
	defer func() { _ = client.Close() }()
	return client.Do(ctx, args...)
}

// inSync checks that the server, a replica, follows its master.
func (s *Server) inSync(ctx context.Context) error {
	info, err := s.do(ctx, "INFO", "replication").Text()
	if err == nil && !strings.Contains(info, "master_link_status:up") {
		err = fmt.Errorf("replica %s is not in sync", s.addr)
	}
	return err
}

// peer is a line of CLUSTER NODES.
type peer struct {
	id, addr, master string
	flags            []string
	epoch            int64
	connected        bool
	slots            [][2]int
}

func (p peer) has(flag string) bool { return slices.Contains(p.flags, flag) }

func (p peer) owns(slot int) bool {
	return slices.ContainsFunc(p.slots, func(r [2]int) bool { return r[0] <= slot && slot <= r[1] })
}

// view is what the node says of the cluster.
func (s *Server) view(ctx context.Context) ([]peer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	text, err := s.do(ctx, "CLUSTER", "NODES").Text()
	if err != nil {
		return nil, err
	}
	var peers []peer
	for line := range strings.Lines(text) {
		p, err := parsePeer(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("CLUSTER NODES of %s: %w in %q", s.addr, err, line)
		}
		peers = append(peers, p)
	}
	return peers, nil
}

// parsePeer reads: id addr@bus flags master ping pong epoch link slot-range…
func parsePeer(fields []string) (peer, error) {
	if len(fields) < 8 {
		return peer{}, fmt.Errorf("line with %d fields", len(fields))
	}
	epoch, err := strconv.ParseInt(fields[6], 10, 64)
	if err != nil {
		return peer{}, err
	}
	addr, _, _ := strings.Cut(fields[1], "@")
	p := peer{id: fields[0], addr: addr, flags: strings.Split(fields[2], ","), master: fields[3], epoch: epoch, connected: fields[7] == "connected"}
	for _, text := range fields[8:] {
		if strings.HasPrefix(text, "[") { // a slot that is moving
			continue
		}
		first, last, found := strings.Cut(text, "-")
		if !found {
			last = first
		}
		from, errFrom := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if errFrom != nil || errTo != nil {
			return peer{}, fmt.Errorf("invalid slots %q", text)
		}
		p.slots = append(p.slots, [2]int{from, to})
	}
	return p, nil
}

// myself is the node's line about itself.
func (s *Server) myself(ctx context.Context) (peer, error) {
	view, err := s.view(ctx)
	if err != nil {
		return peer{}, err
	}
	i := slices.IndexFunc(view, func(p peer) bool { return p.has("myself") })
	if i < 0 {
		return peer{}, fmt.Errorf("CLUSTER NODES of %s does not list the node itself", s.addr)
	}
	return view[i], nil
}
