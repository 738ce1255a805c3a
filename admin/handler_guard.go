package admin

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// maxQuery is the longest query of an address, in bytes.
const maxQuery = 16 << 10

// harden sets what every answer says to browsers.
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

// pathOf is the path behind the prefix; empty where the request is for the prefix without its slash.
func pathOf(r *http.Request) string {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	if r.URL.Path == "" && asked != "" && !strings.HasSuffix(asked, "/") {
		return ""
	}
	return "/" + strings.TrimPrefix(r.URL.Path, "/")
}

// baseName is the last part of the path of a request.
func baseName(uri string) string {
	asked, _, _ := strings.Cut(uri, "?")
	return "./" + path.Base(asked)
}

// identify finds out who asks.
func (c *call) identify() (err error) {
	accepted, err := c.h.logins.attempt(c.r)
	if err == nil {
		if c.who, err = c.h.cfg.Authorize(c.r); !errors.Is(err, ErrUnknown) {
			accepted()
		}
	}
	if err == nil && (c.who.Name == "" || len(c.who.Name) > 256) {
		err = fmt.Errorf("Identity.Name has %d bytes: use 1 to 256", len(c.who.Name))
	}
	if err != nil {
		c.who = Identity{}
		c.h.cfg.Logger.LogAttrs(c.r.Context(), slog.LevelWarn, "luatx: request refused",
			slog.String("remote", c.r.RemoteAddr), slog.String("method", c.r.Method), slog.String("path", c.path), slog.Any("error", err))
	}
	var p *problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, ErrUnknown):
		c.w.Header().Set("WWW-Authenticate", c.h.cfg.Challenge)
		return &problem{Status: http.StatusUnauthorized, Detail: "say who asks"}
	case err != nil:
		return &problem{Status: http.StatusForbidden, Detail: "who asks may not do this"}
	}
	if c.h.cfg.ReadOnly {
		c.who.May = min(c.who.May, MayView)
	}
	return nil
}

// disclose refuses payloads to identities without the right to read them, and to pages of other sites: these could make a
// browser load them in its user's name.
func (c *call) disclose() error {
	if !c.who.Payloads || c.who.May < MayView {
		return &problem{Status: http.StatusForbidden, Detail: c.who.Name + " may not read payloads"}
	}
	switch c.r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin": // no browser, an address that its user typed, or a page of the handler
		return nil
	}
	return &problem{Status: http.StatusForbidden, Title: "Cross-site request", Detail: "a page of another site must not load payloads"}
}

// lingering is how long the rest of a body is read after a reply that did not wait for it. Closing the connection at once
// could cost a client the reply.
const lingering = 250 * time.Millisecond

// abandonBody makes the server close the connection after the reply if the request has a body that nobody will read.
// Otherwise the server would wait for the body, however slowly it comes.
func (c *call) abandonBody() {
	if c.r.Body == nil || c.r.Body == http.NoBody || c.bodyRead {
		return
	}
	c.w.Header().Set("Connection", "close")
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(lingering)) // a server without has its own limits
}

// limit bounds what is read of a request, and reads it as far as it is a form.
func (c *call) limit() error {
	if len(c.r.URL.RawQuery) > maxQuery {
		return &problem{Status: http.StatusRequestURITooLong, Detail: fmt.Sprintf("the query has more than %d bytes", maxQuery)}
	}
	var err error
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return &problem{Status: http.StatusBadRequest, Detail: err.Error()}
	}
	if c.r.Method != http.MethodPost {
		return nil
	}
	want := "application/json"
	if c.page {
		want = "application/x-www-form-urlencoded"
	}
	given, _, _ := strings.Cut(c.r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(given), want) {
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: "send " + want}
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, c.h.cfg.BodyLimit)
	if !c.page {
		return nil
	}
	return c.reading(func() error {
		if err := c.r.ParseForm(); err != nil {
			return unreadable(err)
		}
		return nil
	})
}

// reading bounds the time in which a body must have come, where the server can.
func (c *call) reading(read func() error) error {
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(c.h.cfg.Timeout)) // a server without has its own limits
	if err := read(); err != nil {
		return err // abandonBody sees to the rest
	}
	c.bodyRead = true
	_ = control.SetReadDeadline(time.Time{})
	return nil
}

// unreadable is what to say of a body that could not be read.
func unreadable(err error) error {
	var large *http.MaxBytesError
	var timeout net.Error
	switch {
	case errors.As(err, &large):
		return &problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the body has more than %d bytes", large.Limit)}
	case errors.As(err, &timeout) && timeout.Timeout():
		return &problem{Status: http.StatusRequestTimeout, Detail: "the body did not come in time"}
	}
	return &problem{Status: http.StatusBadRequest, Detail: err.Error()}
}
