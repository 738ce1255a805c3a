package guard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/outbox"
)

// Problem is the JSON of an error, as in RFC 9457.
type Problem struct { //nolint:errname // RFC 9457 calls it a problem
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// RetryAfter is the header of that name, in whole seconds.
	RetryAfter time.Duration `json:"-"`
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// problemOf returns the problem for an error. An error that is neither the server's nor the connection's is the request's.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
		return p
	}
	status := http.StatusUnprocessableEntity
	switch {
	case errors.Is(err, outbox.ErrNotFound), errors.Is(err, admin.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, outbox.ErrDestination):
		status = http.StatusForbidden
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	case unavailable(err):
		status = http.StatusServiceUnavailable
	}
	return &Problem{Title: http.StatusText(status), Status: status, Detail: err.Error()}
}

// unavailable reports whether an error is a failure of a server or of its connection.
func unavailable(err error) bool {
	_, stored := errors.AsType[*outbox.StorageError](err)
	_, answered := errors.AsType[redis.Error](err)
	_, network := errors.AsType[net.Error](err)
	return stored || answered || network || errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) || errors.Is(err, redis.ErrClosed) ||
		errors.Is(err, redis.ErrPoolTimeout) || strings.Contains(err.Error(), "unexpected reply")
}

// fail replies with a problem.
func (c *Call) fail(err error) {
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError {
		c.guard.cfg.Logger.LogAttrs(c.R.Context(), slog.LevelError, "luatx: request failed",
			slog.String("who", c.Who.Name), slog.String("method", c.R.Method), slog.String("path", c.R.URL.Path), slog.Any("error", err))
	}
	if p.RetryAfter > 0 {
		c.W.Header().Set("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	}
	forPeople := c.page || !strings.HasPrefix(c.R.URL.Path, "/api/") && strings.Contains(c.R.Header.Get("Accept"), "text/html")
	if forPeople && c.guard.renderError != nil {
		c.guard.renderError(c, p)
		return
	}
	c.W.Header().Set("Content-Type", "application/problem+json")
	c.write(p.Status, p)
}

// Answer replies with JSON.
func (c *Call) Answer(status int, value any) error {
	c.W.Header().Set("Content-Type", "application/json")
	c.write(status, value)
	return nil
}

func (c *Call) write(status int, value any) {
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(value); err != nil { // the values are our own
		c.guard.cfg.Logger.LogAttrs(c.R.Context(), slog.LevelError, "luatx: response not encoded", slog.String("path", c.R.URL.Path), slog.Any("error", err))
		status = http.StatusInternalServerError
	}
	c.W.WriteHeader(status)
	_, _ = c.W.Write(text.Bytes()) // ignore clients that have disconnected
}

// BadRequest returns a problem with status 400.
func BadRequest(format string, args ...any) error {
	return &Problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf(format, args...)}
}
