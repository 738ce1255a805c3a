package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
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
	// answerKept is the number of bytes of a response's body that Redact gets, and the maximum size of its text in the error.
	answerKept = 512
	// answerRead is the maximum number of bytes of a response that are read, so that the connection can be reused.
	answerRead = 64 << 10
)

// send sends the events in one request and returns the result for all of them.
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
	kept, _ := io.ReadAll(io.LimitReader(resp.Body, answerKept)) // an error leaves the part that arrived
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
	// A nil value is not sent. Its key tells the transport that it may repeat the request if the server has closed the idle
	// connection.
	req.Header["Idempotency-Key"] = req.Header.Values("Idempotency-Key")
	return req, nil
}

// checkHeader returns an error for headers that the transport would reject with an error that looks like a network failure.
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

// unanswered returns the error of a request that got no response.
func unanswered(ctx context.Context, req *http.Request, err error, written bool) error {
	err = &requestError{req.URL.Host, err}
	switch {
	case errors.Is(err, ErrDeniedAddress):
		return message.Permanent(Classify(deniedClass, err))
	case written:
		return Classify("no_answer", err)
	case ctx.Err() != nil: // the lease has ended, or the relay stops
		return Later(err, 0)
	}
	return Unavailable(Classify("network", err))
}

// deniedClass is the class of events that HTTPConfig.DenyPrivate parks.
const deniedClass = "denied_address"

// requestError is the error of a request without a valid response. Its text names only the host and the cause, because the
// transport's text may contain the URL and data that the receiver sent.
type requestError struct {
	host string
	err  error
}

// Error implements error.
func (e *requestError) Error() string { return fmt.Sprintf("relay: POST to %s: %s", e.host, e.cause()) }

// Unwrap returns the transport's error.
func (e *requestError) Unwrap() error { return e.err }

func (e *requestError) cause() string {
	if err, ok := errors.AsType[*net.OpError](e.err); ok {
		return err.Error()
	}
	if err, ok := errors.AsType[*tls.CertificateVerificationError](e.err); ok {
		return err.Error()
	}
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, http.ErrSchemeMismatch, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(e.err, err) {
			return err.Error()
		}
	}
	if err, ok := errors.AsType[net.Error](e.err); ok && err.Timeout() {
		return "timeout"
	}
	return "the receiver returned no valid HTTP response"
}

// StatusError is the error of a response that is not a success.
type StatusError struct {
	// Host is the host, and the port if the URL has one, that the request went to.
	Host string
	// Status is the status code.
	Status int
	// Text is the text that HTTPConfig.Redact returned for the body, at most 512 bytes of it.
	Text string
}

// Error returns the host, the status and the text.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("relay: POST to %s: %d %s", e.Host, e.Status, http.StatusText(e.Status))
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// Class implements Classified.
func (e *StatusError) Class() string { return "http_" + strconv.Itoa(e.Status) }

// judge returns the error that a response means for the events of its request.
func (p *HTTPPublisher) judge(resp *http.Response, kept []byte) error {
	status := resp.StatusCode
	if status/100 == 2 {
		return nil
	}
	err := &StatusError{Host: resp.Request.URL.Host, Status: status}
	if p.cfg.Redact != nil {
		text := p.cfg.Redact(status, kept)
		text = strings.ToValidUTF8(text[:min(len(text), answerKept)], "�")
		err.Text = strings.Join(strings.Fields(text), " ")
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

// retryAfter parses the Retry-After header: seconds, or a date, which is compared with the receiver's clock if the response
// has a Date.
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
