package httpapi

import (
	"cmp"
	"net/http"
	"time"
)

const (
	// defaultTimeout is the default of Config.Timeout.
	defaultTimeout = 30 * time.Second
	// headerTimeout bounds the time for the header of a request.
	headerTimeout = 10 * time.Second
	// idleTimeout bounds the time between two requests of a connection.
	idleTimeout = 2 * time.Minute
)

// Server returns an http.Server for a handler that serves the Handler of the Config, alone or beside others. Its timeouts disconnect
// clients that stall: the header of a request has 10 seconds, the whole request 10 seconds more than Timeout, its reply 30 seconds
// more than Timeout, and a connection waits two minutes for its next request. A header has at most 64 KiB.
func (c Config) Server(handler http.Handler) *http.Server {
	timeout := cmp.Or(c.Timeout, defaultTimeout)
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: timeout + 10*time.Second, WriteTimeout: timeout + 30*time.Second,
		IdleTimeout: idleTimeout, MaxHeaderBytes: 64 << 10,
	}
}
