package admin

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
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
	authorize := c.h.cfg.Authorize
	if authorize == nil {
		c.who = Identity{c.h.op.cfg.Name, MayPurge}
		err = local(c.r)
	} else {
		c.who, err = authorize(c.r)
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

// forwards are headers of proxies: behind one, everybody has its address.
var forwards = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"}

// local refuses what does not come from this machine, or was not meant for it: a page elsewhere can give its own name
// this machine's address.
func local(r *http.Request) error {
	refused := func(detail string) error { return &problem{Status: http.StatusForbidden, Detail: detail} }
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !remote.Addr().Unmap().IsLoopback() {
		return refused("without an authorizer only this machine is served")
	}
	for _, name := range forwards {
		if len(r.Header.Values(name)) > 0 {
			return refused("without an authorizer no proxy is served")
		}
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if ip, err := netip.ParseAddr(host); strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback() {
		return nil
	}
	return refused("without an authorizer only localhost is served")
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
		return err // nobody waits for the rest
	}
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
