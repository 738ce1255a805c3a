package main

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
)

// tunnel accepts plain connections on a loopback port and forwards them to a TLS server, because a proxy must read the data
// that it forwards.
type tunnel struct {
	listener net.Listener
	target   string
	secure   *tls.Config
	wg       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

func startTunnel(target string, secure *tls.Config) (*tunnel, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // local, until close
	if err != nil {
		return nil, err
	}
	t := &tunnel{listener: listener, target: target, secure: secure, open: map[net.Conn]struct{}{}}
	t.wg.Go(t.accept)
	return t, nil
}

func (t *tunnel) addr() string { return t.listener.Addr().String() }

// close closes every connection and returns when nothing runs any more.
func (t *tunnel) close() error {
	err := t.listener.Close()
	t.mu.Lock()
	t.closed = true
	for conn := range t.open {
		_ = conn.Close()
	}
	t.mu.Unlock()
	t.wg.Wait()
	return err
}

func (t *tunnel) accept() {
	for {
		conn, err := t.listener.Accept()
		if err != nil {
			return
		}
		t.wg.Go(func() { t.carry(conn) })
	}
}

// carry copies in both directions. When one side ends, it ends both.
func (t *tunnel) carry(near net.Conn) {
	defer t.forget(near)
	if !t.keep(near) {
		return
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	far, err := tls.DialWithDialer(dialer, "tcp", t.target, t.secure) //nolint:noctx // bounded by its timeout
	if err != nil {
		return
	}
	defer t.forget(far)
	if !t.keep(far) {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(near, far)
		_ = near.Close()
	}()
	_, _ = io.Copy(far, near)
	_ = far.CloseWrite() // the server replies to the requests that it got, and ends
	<-back
}

func (t *tunnel) keep(conn net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.open[conn] = struct{}{}
	return true
}

func (t *tunnel) forget(conn net.Conn) {
	_ = conn.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, conn)
}
