package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay/cehttp"
)

// HTTPConfig configures HTTP. Either URL or URLFor is required.
type HTTPConfig struct {
	// URL is the address to which events are sent by POST.
	URL string
	// URLFor returns the URL of an event, for example by its destination. If it returns an error, the attempt fails and
	// counts. Each host has its own outages. If others can influence the URL, set DenyPrivate; otherwise, they can make the
	// relay send requests to hosts inside your network.
	URLFor func(*message.RawMessage) (string, error)
	// Mode is how a request carries its events; see cehttp. Defaults to cehttp.Structured. Use cehttp.Batched only for
	// receivers that support it.
	Mode cehttp.Mode
	// BatchSize is the maximum number of events of a request in Batched mode. Defaults to 100.
	BatchSize int
	// Header returns headers to add to a request, such as Authorization. If it returns an error, the events are not sent and
	// get that error. Defaults to none.
	Header func(ctx context.Context, events []*message.RawMessage) (http.Header, error)
	// Secrets sign each request, with one signature for each secret; see cehttp.Sign. To replace a secret, sign with both
	// until every receiver has the new one. Defaults to none: requests are not signed.
	Secrets [][]byte
	// Client sends the requests and decides about TLS and proxies. The publisher follows redirects only if Client has a
	// CheckRedirect, because most redirects turn the POST into a GET. Defaults to a client of the publisher's own, with
	// timeouts.
	Client *http.Client
	// DenyPrivate parks events whose host resolves to a loopback, private, link-local or otherwise not public address, with
	// class denied_address and ErrDeniedAddress. The publisher checks the address that it connects to, so no DNS answer
	// gets around the check, and it uses no proxy. It excludes Client. Defaults to false.
	DenyPrivate bool
	// Redact returns the text that an error keeps of the body of an unsuccessful response. It gets at most the first 512
	// bytes, and its result is cut to 512 bytes. Defaults to nil: errors keep nothing of the body.
	Redact func(status int, body []byte) string
	// Timeout bounds one request, including its response. Defaults to 10 seconds.
	Timeout time.Duration
	// Concurrency is the number of requests of one batch that run at a time. Defaults to 8.
	Concurrency int
	// RetryAfterCap caps the delay that a receiver requests by Retry-After. Defaults to 5 minutes.
	RetryAfterCap time.Duration
}

func (c HTTPConfig) withDefaults() HTTPConfig {
	c.BatchSize = cmp.Or(c.BatchSize, 100)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.Concurrency = cmp.Or(c.Concurrency, 8)
	c.RetryAfterCap = cmp.Or(c.RetryAfterCap, 5*time.Minute)
	return c
}

func (c HTTPConfig) validate() error {
	var errs []error
	if (c.URL == "") == (c.URLFor == nil) {
		errs = append(errs, errors.New("relay: HTTPConfig.URL and URLFor are both set or both empty; set exactly one of them"))
	}
	if c.URL != "" {
		if _, err := parseURL(c.URL); err != nil {
			errs = append(errs, fmt.Errorf("relay: HTTPConfig.URL: %w", err))
		}
	}
	if c.Mode != cehttp.Structured && c.Mode != cehttp.Binary && c.Mode != cehttp.Batched {
		errs = append(errs, fmt.Errorf("relay: HTTPConfig.Mode is %d; use cehttp.Structured, Binary or Batched", c.Mode))
	}
	if c.DenyPrivate && c.Client != nil {
		errs = append(errs, errors.New("relay: HTTPConfig.DenyPrivate and Client are both set; leave one out, a Client makes its own connections"))
	}
	for i, secret := range c.Secrets {
		if err := cehttp.CheckSecret(secret); err != nil {
			errs = append(errs, fmt.Errorf("relay: HTTPConfig.Secrets[%d]: %w", i, err))
		}
	}
	if min(c.BatchSize, c.Concurrency) < 0 || min(c.Timeout, c.RetryAfterCap) < 0 {
		errs = append(errs, errors.New("relay: HTTPConfig.BatchSize, Timeout, Concurrency or RetryAfterCap is negative; use 0 for the default, or more"))
	}
	return errors.Join(errs...)
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("it cannot be parsed") // the error contains the URL, and so perhaps a password
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("use an absolute one of http or https")
	}
	return u, nil
}

// HTTPPublisher sends events as CloudEvents over HTTP. See HTTP.
type HTTPPublisher struct {
	cfg    HTTPConfig
	client http.Client
	own    *http.Transport // nil if the client is the user's
}

// HTTP returns a Publisher that sends events as CloudEvents over HTTP. It returns an error if cfg is invalid. The response
// decides the result of an event:
//
//   - 2xx: the event is sent.
//   - 429, 503, 408, 425, and no connection: the receiver is unavailable, and the attempt does not count. With 429 and
//     503, Retry-After, in seconds or as a date, is the delay until the next request.
//   - 401, 403, 404, 407, any redirect, and the other 5xx: the attempt fails and counts. Either the receiver or the address
//     has to
//
// be repaired, or the event makes the receiver fail.
//   - No response within Timeout to a request that was sent in full: the attempt fails and counts, with the class
//     no_answer. An
//
// event that hangs or crashes its receiver must use up its attempts.
//   - The other 4xx: the event is parked.
//
// The class of a response is http_ and its status, and that of a failed connection is network. Errors name the host and the
// status, and nothing else of the URL or the response unless HTTPConfig.Redact returns it. In Batched mode all events of a
// request share its response. The publisher sends a rejected batch again in halves, until it finds the event that the
// receiver does not accept. Events with the same partition key are sent one after another.
func HTTP(cfg HTTPConfig) (*HTTPPublisher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	p := &HTTPPublisher{cfg: cfg}
	if cfg.Client != nil {
		p.client = *cfg.Client
	} else {
		p.own = transport(cfg)
		p.client.Transport = p.own
	}
	if p.client.CheckRedirect == nil {
		p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return p, nil
}

const (
	dialTimeout = 5 * time.Second
	idleTimeout = 90 * time.Second
	pingEvery   = 15 * time.Second
)

// transport returns a transport that bounds every operation that can hang.
func transport(cfg HTTPConfig) *http.Transport {
	dialer, proxy := &net.Dialer{Timeout: dialTimeout, KeepAlive: pingEvery}, http.ProxyFromEnvironment
	if cfg.DenyPrivate {
		dialer.Control, proxy = denyPrivate, nil // a proxy would connect to an address that this process does not see
	}
	return &http.Transport{
		Proxy:                 proxy,
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: cfg.Timeout,
		IdleConnTimeout:       idleTimeout,
		MaxIdleConnsPerHost:   2 * cfg.Concurrency,
		MaxIdleConns:          100,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingEvery, PingTimeout: dialTimeout}, // detects dead connections
	}
}

// Close closes the idle connections of the publisher's own client. Call it when no relay uses the publisher any more.
func (p *HTTPPublisher) Close() {
	if p.own != nil {
		p.own.CloseIdleConnections()
	}
}

// Scope implements Scoped. With HTTPConfig.URLFor the scope is the scheme and host of the event's URL; otherwise it is
// empty.
func (p *HTTPPublisher) Scope(event *message.RawMessage) string {
	if p.cfg.URLFor == nil {
		return ""
	}
	target, err := p.target(event)
	if err != nil {
		return "no URL"
	}
	return target.Scheme + "://" + target.Host
}

// target returns the URL of an event.
func (p *HTTPPublisher) target(event *message.RawMessage) (*url.URL, error) {
	text := p.cfg.URL
	if p.cfg.URLFor != nil {
		var err error
		if text, err = p.cfg.URLFor(event); err != nil {
			return nil, Classify(classOf(err, "unrouted"), fmt.Errorf("relay: no URL for event %q: %w", event.ID(), err))
		}
	}
	target, err := parseURL(text)
	if err != nil {
		return nil, Classify("unrouted", fmt.Errorf("relay: the URL for event %q: %w", event.ID(), err))
	}
	return target, nil
}

// Publish implements Publisher.
func (p *HTTPPublisher) Publish(ctx context.Context, events []*message.RawMessage) []error {
	if p.cfg.Mode == cehttp.Batched {
		return p.publishBatches(ctx, events)
	}
	cfg := FuncConfig{Concurrency: p.cfg.Concurrency}.withDefaults()
	return each(ctx, events, cfg, p.Scope, func(ctx context.Context, event *message.RawMessage) error {
		target, err := p.target(event)
		if err != nil {
			return err
		}
		return p.send(ctx, target, event)
	})
}
