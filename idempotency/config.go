package idempotency

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
)

// Config configures New. Aggregate and Scope are required.
type Config struct {
	// Aggregate returns the aggregate of a request, on whose slot the handler writes. If it returns an error, the request gets
	// 400. It must return the same aggregate for a repeated request.
	Aggregate func(*http.Request) (string, error)
	// Scope returns the principal of a request, such as an authenticated user or tenant. Two principals may use the same key, and
	// neither gets a response of the other. If Scope returns "", a request with a key gets 403. A service whose clients may all
	// see each other's responses can return a constant. Required.
	Scope func(*http.Request) string
	// Header is the header with the key. Defaults to "Idempotency-Key".
	Header string
	// KeyOptional accepts requests without a key. Each of them runs in a transaction and is always new.
	KeyOptional bool
	// MaxRequest is the maximum size of a request's body, in bytes. Defaults to 1 MiB.
	MaxRequest int64
	// MaxResponse is the maximum size of a response's body, in bytes. A handler that writes more fails. The body is stored for
	// the Transactor's Retention. Defaults to 256 KiB.
	MaxResponse int
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Header = cmp.Or(c.Header, "Idempotency-Key")
	c.MaxRequest = cmp.Or(c.MaxRequest, 1<<20)
	c.MaxResponse = cmp.Or(c.MaxResponse, 256<<10)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c Config) validate() error {
	switch {
	case c.Aggregate == nil:
		return errors.New("idempotency: Config.Aggregate is nil; return the aggregate that a request writes to")
	case c.Scope == nil:
		return errors.New("idempotency: Config.Scope is nil; return the principal of a request, so that nobody else gets its responses")
	case c.MaxRequest < 0:
		return fmt.Errorf("idempotency: Config.MaxRequest is %d; use 0 for the default, or a number of bytes", c.MaxRequest)
	case c.MaxResponse < 0:
		return fmt.Errorf("idempotency: Config.MaxResponse is %d; use 0 for the default, or a number of bytes", c.MaxResponse)
	}
	return nil
}
