package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
)

// gate is a listener that limits the connections of each client address and the total. A connection beyond the limit
// replaces the one that has waited longest for its client, so that slow clients give way and running requests stay.
type gate struct {
	net.Listener

	most, mostEach int

	mu    sync.Mutex
	open  map[*guarded]struct{}
	clock uint64 // counts the times at which a connection began to wait
}

func newGate(listener net.Listener, most int) *gate {
	return &gate{Listener: listener, most: most, mostEach: max(1, most/2), open: map[*guarded]struct{}{}}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, ok := g.admit(conn); ok {
			return c, nil
		}
		_ = conn.Close() // every connection runs a request
	}
}

// admit makes room for a connection. It returns false if there is none.
func (g *gate) admit(conn net.Conn) (*guarded, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &guarded{Conn: conn, gate: g, client: clientOf(conn)}
	each := 0
	for other := range g.open {
		if other.client == c.client {
			each++
		}
	}
	full := len(g.open) >= g.most
	if full || each >= g.mostEach {
		victim := g.longestWaiting(c.client, each >= g.mostEach)
		if victim == nil {
			return nil, false
		}
		delete(g.open, victim)
		_ = victim.Conn.Close() // its request, if any, fails
	}
	g.clock++
	c.since = g.clock
	g.open[c] = struct{}{}
	return c, true
}

// longestWaiting returns the connection that has waited longest for its client, among all or those of one client. It
// returns nil if none waits.
func (g *gate) longestWaiting(client netip.Addr, ofClient bool) (victim *guarded) {
	for c := range g.open {
		if c.running.Load() > 0 || ofClient && c.client != client {
			continue
		}
		if victim == nil || c.since < victim.since {
			victim = c
		}
	}
	return victim
}

// clientOf returns the address of a client. For IPv6 it returns the first address of the /64, because one client has all of
// them.
func clientOf(conn net.Conn) netip.Addr {
	remote, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	addr := remote.Addr().Unmap().WithZone("")
	if prefix, err := addr.Prefix(64); err == nil && addr.Is6() {
		addr = prefix.Addr()
	}
	return addr
}

// guarded is a connection that a gate has admitted.
type guarded struct {
	net.Conn

	gate    *gate
	client  netip.Addr
	running atomic.Int64 // requests that run and do not wait for the client
	since   uint64       // by the gate's clock, when it began to wait
}

// Close implements net.Conn.
func (c *guarded) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.open, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// Write implements net.Conn. A client that does not read counts as waiting.
func (c *guarded) Write(p []byte) (int, error) {
	if c.running.Load() > 0 {
		defer c.waits()()
	}
	return c.Conn.Write(p)
}

// runs marks a request as running until the returned function is called.
func (c *guarded) runs() (ended func()) {
	c.running.Add(1)
	return func() { c.stop() }
}

// waits marks the running request as waiting for the client until the returned function is called.
func (c *guarded) waits() (over func()) {
	c.stop()
	return func() { c.running.Add(1) }
}

func (c *guarded) stop() {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	c.gate.clock++
	c.since = c.gate.clock
	c.running.Add(-1)
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// remember is the ConnContext of a server behind a gate.
func remember(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok { // with TLS
		conn = secured.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// watched notifies the gate of connections that run requests.
func watched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*guarded); ok {
			defer c.runs()()
			if r.Body != nil && r.Body != http.NoBody {
				r.Body = watchedBody{r.Body, c}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// watchedBody is a body whose reader waits for the client.
type watchedBody struct {
	io.ReadCloser

	conn *guarded
}

// Read implements io.Reader.
func (b watchedBody) Read(p []byte) (int, error) {
	defer b.conn.waits()()
	return b.ReadCloser.Read(p)
}
