package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay/cehttp"
)

const (
	// answerKept is how much of an answer goes into the error, in bytes.
	answerKept = 512
	// answerRead is how much of an answer is read, so that the connection can be used again.
	answerRead = 64 << 10
)

// send makes one request of the events and says what became of them.
func (p *HTTPPublisher) send(ctx context.Context, target *url.URL, events ...*message.RawMessage) error {
	bounded, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	var written atomic.Bool
	req, err := p.request(httptrace.WithClientTrace(bounded, &httptrace.ClientTrace{
		GetConn:      func(string) { written.Store(false) }, // the transport may try a second connection
		WroteRequest: func(info httptrace.WroteRequestInfo) { written.Store(info.Err == nil) },
	}), target, events)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return unanswered(ctx, req, err, written.Load())
	}
	defer func() { _ = resp.Body.Close() }()
	kept, _ := io.ReadAll(io.LimitReader(resp.Body, answerKept)) // what there is of it
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, answerRead))
	return p.judge(resp, kept)
}

func (p *HTTPPublisher) request(ctx context.Context, target *url.URL, events []*message.RawMessage) (*http.Request, error) {
	header, body, err := cehttp.Encode(p.cfg.Mode, events...)
	if err != nil {
		return nil, message.Permanent(Classify("malformed", err))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, Classify("unrouted", errors.New("relay: no request can be made of the URL"))
	}
	req.Header.Set("User-Agent", "luatx")
	if p.cfg.Header != nil {
		more, err := p.cfg.Header(ctx, events)
		if err == nil {
			err = checkHeader(more)
		}
		if err != nil {
			return nil, fmt.Errorf("relay: HTTPConfig.Header: %w", err)
		}
		for name, values := range more {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	maps.Copy(req.Header, header)
	if len(p.cfg.Secrets) > 0 {
		id := events[0].ID()
		if p.cfg.Mode == cehttp.Batched {
			id = message.NewID()
		}
		cehttp.Sign(req.Header, body, id, time.Now(), p.cfg.Secrets...)
	}
	// Nothing is sent of this: it tells the transport that the request may be repeated where a connection has been closed
	// while it was idle.
	req.Header["Idempotency-Key"] = req.Header.Values("Idempotency-Key")
	return req, nil
}

// checkHeader refuses what the transport would, whose error looks like one of the network.
func checkHeader(header http.Header) error {
	for name, values := range header {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.ContainsAny(name, `"(),/:;<=>?@[]\{}`) {
			return Classify("header", fmt.Errorf("%q is no name of a header", name))
		}
		for _, value := range values {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return Classify("header", fmt.Errorf("the value of %q holds control characters", name))
			}
		}
	}
	return nil
}

// unanswered is the error of a request without an answer.
func unanswered(ctx context.Context, req *http.Request, err error, written bool) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // that one shows all of the URL
	}
	err = fmt.Errorf("relay: POST %s: %w", plain(req.URL), err)
	switch {
	case written:
		return Classify("no_answer", err)
	case ctx.Err() != nil: // the lease has ended, or the relay stops
		return Later(err, 0)
	}
	return Unavailable(Classify("network", err))
}

// plain is a URL without what it may hold of secrets.
func plain(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// StatusError is an answer that is not a success.
type StatusError struct {
	// URL is where the request went to, without user, password and query.
	URL string
	// Status is the status code.
	Status int
	// Body is how the answer begins, up to 512 bytes of it.
	Body string
}

// Error returns all of it.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("relay: POST %s: %d %s", e.URL, e.Status, http.StatusText(e.Status))
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// Class implements Classified.
func (e *StatusError) Class() string { return "http_" + strconv.Itoa(e.Status) }

// judge says what an answer means for the events of its request.
func (p *HTTPPublisher) judge(resp *http.Response, kept []byte) error {
	status := resp.StatusCode
	if status/100 == 2 {
		return nil
	}
	err := &StatusError{
		URL:    plain(resp.Request.URL),
		Status: status,
		Body:   strings.Join(strings.Fields(strings.ToValidUTF8(string(kept), "�")), " "),
	}
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if d, asked := retryAfter(resp.Header); asked {
			return Unavailable(message.RetryAfter(err, min(d, p.cfg.RetryAfterCap)))
		}
		return Unavailable(err)
	case http.StatusRequestTimeout, http.StatusTooEarly:
		return Unavailable(err)
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusProxyAuthRequired:
		return err
	}
	if status/100 == 4 {
		return message.Permanent(err)
	}
	return err
}

// retryAfter reads Retry-After: seconds, or a date by the clock of the one who answers.
func retryAfter(header http.Header) (time.Duration, bool) {
	text := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0), true
}
