package service

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/luatx/luatx/admin/httpapi"
)

// The states of a service.
type state int

const (
	idle state = iota
	starting
	working
	stopping
)

// checkTimeout bounds the check of the server in Ready.
const checkTimeout = 2 * time.Second

var (
	// ErrStarting is returned by Ready before Run has started the pieces.
	ErrStarting = errors.New("service: not ready: Run has not started every part; retry later")
	// ErrStopping is returned by Ready once the context of Run has ended or a piece has failed.
	ErrStopping = errors.New("service: not ready: the service is stopping; use another instance")
)

// progress is what a Service knows of itself.
type progress struct {
	check Check

	mu    sync.Mutex
	state state
	errs  []error
}

func (p *progress) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != idle {
		return false
	}
	p.state = starting
	return true
}

func (p *progress) set(s state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = max(p.state, s)
}

func (p *progress) ready()    { p.set(working) }
func (p *progress) stopping() { p.set(stopping) }

func (p *progress) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs, p.state = append(p.errs, err), stopping
}

func (p *progress) failures() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.errs)
}

// Health returns nil, or the error of the pieces that have failed: the process should be restarted. A server that cannot be
// reached is no such error, because a restart does not help.
func (s *Service) Health() error { return errors.Join(s.failures()...) }

// Ready returns nil if the pieces run and the server replies: ErrStarting before, ErrStopping after, and the error of
// Given.Check, or of PING, otherwise. It waits for the reply for 2 s at most.
func (s *Service) Ready(ctx context.Context) error {
	s.mu.Lock()
	now := s.state
	s.mu.Unlock()
	switch {
	case now < working:
		return ErrStarting
	case now > working:
		return ErrStopping
	case s.check == nil:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return s.check(ctx)
}

// ServeHTTP serves GET /livez and GET /readyz, which reply with status 200 or 503 by Health and Ready, and under all other
// paths the admin handler, if Config.Admin is set.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Service) route() {
	s.mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { s.reply(w, "live", s.Health()) })
	s.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { s.reply(w, "ready", s.Ready(r.Context())) })
	if s.admin != nil {
		s.mux.Handle("/", s.admin)
	}
}

// reply does not show errors: they may name servers, and anybody may ask.
func (s *Service) reply(w http.ResponseWriter, what string, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		s.cfg.Logger.Debug("service: probe failed", "probe", what, "error", err)
		w.WriteHeader(http.StatusServiceUnavailable)
		what = "not " + what
	}
	_, _ = w.Write([]byte(what + "\n"))
}

// server returns the server of Config.Addr, whose timeouts disconnect clients that stall.
func (s *Service) server() *http.Server {
	var cfg httpapi.Config
	if s.cfg.Admin != nil {
		cfg = *s.cfg.Admin
	}
	return cfg.Server(s)
}

// serve serves the service at Config.Addr until ctx ends.
func (s *Service) serve(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return err
	}
	server := s.server()
	stopped := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownTimeout/40)
		defer cancel()
		stopped <- server.Shutdown(bounded)
	})()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if <-stopped != nil {
		return server.Close() // requests that take too long
	}
	return nil
}
