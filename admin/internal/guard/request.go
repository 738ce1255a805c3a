package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxQuery is the longest query of an address, maxBody the longest body, in bytes.
const maxQuery, maxBody = 16 << 10, 1 << 20

// harden sets the security headers of every response.
func harden(header http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"X-Frame-Options":              "DENY",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control":                "no-store",
	} {
		header.Set(name, value)
	}
}

// identify identifies the sender of the request.
func (c *Call) identify() (err error) {
	accepted, err := c.guard.logins.attempt(c.R)
	if err == nil {
		if c.Who, err = c.guard.cfg.Authorize(c.R); !errors.Is(err, ErrUnknown) {
			accepted()
		}
	}
	if err == nil && (c.Who.Name == "" || len(c.Who.Name) > 256) {
		err = fmt.Errorf("Identity.Name has %d bytes; use 1 to 256", len(c.Who.Name))
	}
	if err != nil {
		c.Who = Identity{}
		c.guard.cfg.Logger.LogAttrs(c.R.Context(), slog.LevelWarn, "luatx: request rejected",
			slog.String("remote", c.R.RemoteAddr), slog.String("method", c.R.Method), slog.String("path", c.R.URL.Path), slog.Any("error", err))
	}
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, ErrUnknown):
		c.W.Header().Set("WWW-Authenticate", c.guard.cfg.Challenge)
		return &Problem{Status: http.StatusUnauthorized, Detail: "the credentials are missing or unknown"}
	case err != nil:
		return &Problem{Status: http.StatusForbidden, Detail: "the sender of the request has no rights here"}
	}
	if c.guard.cfg.ReadOnly {
		c.Who.May = min(c.Who.May, MayView)
	}
	return nil
}

// Disclose returns a problem for senders without the right to read payloads, and for pages of other sites, which could make a
// browser load them in its user's name.
func (c *Call) Disclose() error {
	if !c.Who.Payloads || c.Who.May < MayView {
		return &Problem{Status: http.StatusForbidden, Detail: c.Who.Name + " may not read payloads"}
	}
	switch c.R.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin": // no browser, an address that its user typed, or a page of the handler
		return nil
	}
	return &Problem{Status: http.StatusForbidden, Title: "Cross-site request", Detail: "the request comes from a page of another site, which may not load payloads"}
}

// lingering is how long the rest of a body is read after a reply that did not wait for it. Closing the connection at once
// could cost a client the reply.
const lingering = 250 * time.Millisecond

// abandonBody makes the server close the connection after the reply if the request has a body that nobody will read.
// Otherwise the server would wait for the body, however slowly it comes.
func (c *Call) abandonBody() {
	if c.R.Body == nil || c.R.Body == http.NoBody || c.bodyRead {
		return
	}
	c.W.Header().Set("Connection", "close")
	_ = http.NewResponseController(c.W).SetReadDeadline(time.Now().Add(lingering)) // a server without deadlines has its own limits
}

// limit bounds the size of a request, and reads its body if it is a form.
func (c *Call) limit() error {
	if len(c.R.URL.RawQuery) > maxQuery {
		return &Problem{Status: http.StatusRequestURITooLong, Detail: fmt.Sprintf("the query has more than %d bytes", maxQuery)}
	}
	var err error
	if c.Query, err = url.ParseQuery(c.R.URL.RawQuery); err != nil {
		return &Problem{Status: http.StatusBadRequest, Detail: err.Error()}
	}
	if c.R.Method != http.MethodPost {
		return nil
	}
	want := "application/json"
	if c.page {
		want = "application/x-www-form-urlencoded"
	}
	given, _, _ := strings.Cut(c.R.Header.Get("Content-Type"), ";")
	given = strings.ToLower(strings.TrimSpace(given))
	withFile := c.page && given == "multipart/form-data"
	if given != want && !withFile {
		return &Problem{Status: http.StatusUnsupportedMediaType, Detail: "send " + want}
	}
	c.R.Body = http.MaxBytesReader(c.W, c.R.Body, maxBody)
	if !c.page {
		return nil
	}
	return c.reading(func() (err error) {
		if withFile {
			err = c.R.ParseMultipartForm(maxBody) // no file is larger, so none is written to disk
		} else {
			err = c.R.ParseForm()
		}
		if err != nil {
			return unreadable(err)
		}
		return nil
	})
}

// reading reads a body within the timeout, if the server supports deadlines.
func (c *Call) reading(read func() error) error {
	control := http.NewResponseController(c.W)
	_ = control.SetReadDeadline(time.Now().Add(c.guard.cfg.Timeout)) // a server without deadlines has its own limits
	if err := read(); err != nil {
		return err // abandonBody handles the rest
	}
	c.bodyRead = true
	_ = control.SetReadDeadline(time.Time{})
	return nil
}

// unreadable returns the problem for a body that could not be read.
func unreadable(err error) error {
	var large *http.MaxBytesError
	var timeout net.Error
	switch {
	case errors.As(err, &large):
		return &Problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the body has more than %d bytes", large.Limit)}
	case errors.As(err, &timeout) && timeout.Timeout():
		return &Problem{Status: http.StatusRequestTimeout, Detail: "the body did not arrive in time"}
	}
	return &Problem{Status: http.StatusBadRequest, Detail: err.Error()}
}
