package trigger

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/luatx/luatx/message"
)

// Connector configures the connection to the server. Several triggers may share one. It hides secrets when it is printed or
// logged.
type Connector struct {
	// URL is redis://host:port/db, or rediss:// for TLS. It may have a name and a password before the host, and go-redis options
	// after a question mark. Required, unless Client is set.
	URL string
	// Cluster means that the URL is that of a node of a Redis Cluster. Add further nodes as ?addr=host:port.
	Cluster bool
	// TLS configures rediss:// connections: root CAs, certificate, server name. Defaults to the system's CAs.
	TLS *tls.Config
	// Username and Password override those of the URL.
	Username, Password string
	// Retry has the defaults of all triggers of the connector.
	Retry Retry
	// Client is used instead of a client made from URL. The trigger does not close it. Set its ContextTimeoutEnabled; otherwise
	// the trigger notices an unresponsive server some seconds later.
	Client redis.UniversalClient
}

// String implements fmt.Stringer, without secrets.
func (c Connector) String() string {
	if c.Client != nil {
		return "client of the caller"
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return "unreadable URL"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// GoString implements fmt.GoStringer, without secrets.
func (c Connector) GoString() string { return "trigger.Connector(" + c.String() + ")" }

// LogValue implements slog.LogValuer, without secrets.
func (c Connector) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalText implements encoding.TextMarshaler, without secrets.
func (c Connector) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c Connector) validate() error {
	if c.Client != nil {
		if c.URL != "" || c.Cluster || c.TLS != nil || c.Username != "" || c.Password != "" {
			return wrong("Connector.Client", "leave URL, Cluster, TLS, Username and Password empty, or clear Client")
		}
		return nil
	}
	_, _, err := c.options()
	return err
}

// clientRetries is the number of retries of the client itself, for a pooled connection that has ended. The trigger has its own
// backoff.
const clientRetries = 1

// options returns the options of a client for one server or a cluster.
func (c Connector) options() (*redis.Options, *redis.ClusterOptions, error) {
	if c.URL == "" {
		return nil, nil, wrong("Connector.URL", "set a URL such as redis://localhost:6379/0")
	}
	u, err := url.Parse(c.URL)
	if err != nil { // the error would contain the password
		return nil, nil, wrong("Connector.URL", "percent-encode special characters in the name and the password")
	}
	user, password := u.User.Username(), ""
	if u.User != nil {
		password, _ = u.User.Password()
	}
	user, password = cmp.Or(c.Username, user), cmp.Or(c.Password, password)
	u.User = nil // the rest has no secrets
	if c.TLS != nil && u.Scheme != "rediss" {
		return nil, nil, wrong("Connector.TLS", "use a rediss:// URL")
	}
	if c.Cluster {
		opts, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, nil, badURL(err)
		}
		opts.Username, opts.Password = user, password
		opts.ContextTimeoutEnabled, opts.DialerRetries, opts.MaxRetries = true, 1, cmp.Or(opts.MaxRetries, clientRetries)
		opts.TLSConfig = mergeTLS(opts.TLSConfig, c.TLS)
		opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		return nil, opts, nil
	}
	opts, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, nil, badURL(err)
	}
	opts.Username, opts.Password = user, password
	opts.ContextTimeoutEnabled, opts.DialerRetries, opts.MaxRetries = true, 1, cmp.Or(opts.MaxRetries, clientRetries)
	opts.TLSConfig = mergeTLS(opts.TLSConfig, c.TLS)
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return opts, nil, nil
}

func badURL(err error) error {
	return &OptionError{Option: "Connector.URL", Remedy: "use redis://host:port/db or rediss://host:port/db", Err: fmt.Errorf("%w: %w", ErrOption, err)}
}

// mergeTLS gives the caller's config precedence over that of the URL, which has the server's name.
func mergeTLS(ofURL, given *tls.Config) *tls.Config {
	if given == nil {
		return ofURL
	}
	merged := given.Clone()
	merged.ServerName = cmp.Or(merged.ServerName, ofURL.ServerName)
	return merged
}

// connect returns a client, and a function that closes it. It does no I/O.
func (c Connector) connect() (redis.UniversalClient, func() error, error) {
	if c.Client != nil {
		return c.Client, func() error { return nil }, nil
	}
	single, cluster, err := c.options()
	var client redis.UniversalClient
	switch {
	case err != nil:
		return nil, nil, err
	case cluster != nil:
		client = redis.NewClusterClient(cluster)
	default:
		client = redis.NewClient(single)
	}
	return client, func() error {
		if err := client.Close(); !errors.Is(err, redis.ErrClosed) {
			return err
		}
		return nil
	}, nil
}

// Retry configures the delays after failures. Zero fields are taken from the Connector, and then from the defaults. Each delay is
// random below a ceiling that doubles with every failure.
type Retry struct {
	// Reconnect is the delay between attempts to connect or to receive. The first attempt follows at once. Defaults to 50 ms, at
	// most 1 s.
	Reconnect message.Backoff
	// Entry is the delay before a failed entry is retried. It grows with the number of deliveries. An error with
	// message.RetryAfter overrides it. Defaults to 100 ms, at most 30 s.
	Entry message.Backoff
}

// over fills zero fields from the defaults.
func (r Retry) over(defaults Retry) Retry {
	r.Reconnect.Base = cmp.Or(r.Reconnect.Base, defaults.Reconnect.Base)
	r.Reconnect.Max = cmp.Or(r.Reconnect.Max, defaults.Reconnect.Max)
	r.Entry.Base = cmp.Or(r.Entry.Base, defaults.Entry.Base)
	r.Entry.Max = cmp.Or(r.Entry.Max, defaults.Entry.Max)
	return r
}

var defaultRetry = Retry{
	Reconnect: message.Backoff{Base: 50 * time.Millisecond, Max: time.Second},
	Entry:     message.Backoff{Base: 100 * time.Millisecond, Max: 30 * time.Second},
}

func (r Retry) negative() bool {
	return min(r.Reconnect.Base, r.Reconnect.Max, r.Entry.Base, r.Entry.Max) < 0
}
