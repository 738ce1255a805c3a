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

// Connector says how to reach the server. Several triggers may share one. It shows no secret when it is printed or logged.
type Connector struct {
	// URL is redis://host:port/db, or rediss:// for TLS, with name and password before the host where they are not given
	// below, and go-redis' options behind a question mark. Required, unless there is a Client.
	URL string
	// Cluster says that the URL names a node of a Redis Cluster; more of them as ?addr=host:port.
	Cluster bool
	// TLS is how a rediss:// connection is made: root CAs, certificate, server name. Defaults to the system's CAs.
	TLS *tls.Config
	// Username and Password go before those of the URL.
	Username, Password string
	// Retry are defaults for all triggers of the connector.
	Retry Retry
	// Client is used instead of one made from URL, and not closed. Set ContextTimeoutEnabled on it, or a server that
	// hangs is noticed some seconds later.
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
			return wrong("Connector.Client", "leave URL, Cluster, TLS, Username and Password empty beside it")
		}
		return nil
	}
	_, _, err := c.options()
	return err
}

// clientRetries is how often the client itself tries again, for a connection of the pool that had ended. The trigger has
// backoffs of its own.
const clientRetries = 1

// options are those of a client: of one server, or of a cluster.
func (c Connector) options() (*redis.Options, *redis.ClusterOptions, error) {
	if c.URL == "" {
		return nil, nil, wrong("Connector.URL", "give a URL such as redis://localhost:6379/0")
	}
	u, err := url.Parse(c.URL)
	if err != nil { // the error would quote the password
		return nil, nil, wrong("Connector.URL", "it cannot be read as a URL: percent-encode special characters in name and password")
	}
	user, password := u.User.Username(), ""
	if u.User != nil {
		password, _ = u.User.Password()
	}
	user, password = cmp.Or(c.Username, user), cmp.Or(c.Password, password)
	u.User = nil // of what is left, errors may speak
	if c.TLS != nil && u.Scheme != "rediss" {
		return nil, nil, wrong("Connector.TLS", "use a URL of rediss:// with it")
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

// mergeTLS puts the caller's config before that of the URL, which knows the server's name.
func mergeTLS(ofURL, given *tls.Config) *tls.Config {
	if given == nil {
		return ofURL
	}
	merged := given.Clone()
	merged.ServerName = cmp.Or(merged.ServerName, ofURL.ServerName)
	return merged
}

// connect returns a client, and what ends it. It does no I/O.
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

// Retry says how long a trigger waits after failures. A zero field takes the value of the Connector, and then the
// default. The delay is chosen evenly below a ceiling that doubles with every failure.
type Retry struct {
	// Reconnect is between attempts to connect or to receive. The first attempt follows at once. Defaults to 50 ms, at
	// most 1 s.
	Reconnect message.Backoff
	// Entry is after which time an entry whose function failed is due again, by the number of its deliveries, where the
	// error does not say (message.RetryAfter). Defaults to 100 ms, at most 30 s.
	Entry message.Backoff
}

// over fills what is zero from the defaults.
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
