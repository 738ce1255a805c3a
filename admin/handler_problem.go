package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/outbox"
)

// problem is what went wrong, as RFC 9457 has it.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// RetryAfter is the header of that name, in whole seconds.
	RetryAfter time.Duration `json:"-"`
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

// problemOf says how an error is answered. What is not the server's or the connection's is the request's.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
		return p
	}
	status := http.StatusUnprocessableEntity
	switch {
	case errors.Is(err, outbox.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, outbox.ErrDestination):
		status = http.StatusForbidden
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	case unavailable(err):
		status = http.StatusServiceUnavailable
	}
	return &problem{Title: http.StatusText(status), Status: status, Detail: err.Error()}
}

// unavailable reports whether an error is that of a server, or of the way to it.
func unavailable(err error) bool {
	_, stored := errors.AsType[*outbox.StorageError](err)
	_, answered := errors.AsType[redis.Error](err)
	_, network := errors.AsType[net.Error](err)
	return stored || answered || network || errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) || errors.Is(err, redis.ErrClosed) ||
		errors.Is(err, redis.ErrPoolTimeout) || strings.Contains(err.Error(), "unexpected reply")
}

// fail answers with a problem.
func (c *call) fail(err error) {
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError {
		c.h.cfg.Logger.LogAttrs(c.r.Context(), slog.LevelError, "luatx: request failed",
			slog.String("who", c.who.Name), slog.String("method", c.r.Method), slog.String("path", c.path), slog.Any("error", err))
	}
	if p.RetryAfter > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	}
	forPeople := c.page || !strings.HasPrefix(c.path, "/api/") && strings.Contains(c.r.Header.Get("Accept"), "text/html")
	if forPeople && c.h.errorPage != nil {
		c.h.errorPage(c, p)
		return
	}
	c.w.Header().Set("Content-Type", "application/problem+json")
	c.write(p.Status, p)
}

// answer answers with JSON.
func (c *call) answer(status int, value any) error {
	c.w.Header().Set("Content-Type", "application/json")
	c.write(status, value)
	return nil
}

func (c *call) write(status int, value any) {
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(value); err != nil { // of values that are made here
		c.h.cfg.Logger.LogAttrs(c.r.Context(), slog.LevelError, "luatx: answer cannot be written", slog.String("path", c.path), slog.Any("error", err))
		status = http.StatusInternalServerError
	}
	c.w.WriteHeader(status)
	_, _ = c.w.Write(text.Bytes()) // a reader that has gone needs no answer
}
