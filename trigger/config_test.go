package trigger

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
)

func nothing(context.Context, *message.RawMessage) error { return nil }

// wrongOptions returns the options that an error names.
func wrongOptions(t *testing.T, err error) (names []string) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if err == nil || !ok {
		return nil
	}
	for _, err := range joined.Unwrap() {
		wrong, ok := errors.AsType[*OptionError](err)
		if !ok || wrong.Remedy == "" || !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), wrong.Option) {
			t.Errorf("%v is no OptionError that says what to do", err)
			continue
		}
		names = append(names, wrong.Option)
	}
	return names
}

func TestValidateReportsEachWrongOption(t *testing.T) {
	t.Parallel()
	stream := func(change func(*Config)) Config {
		c := Config{Function: "f", Run: nothing, Connector: Connector{URL: "redis://localhost"}, Mode: ModeStream, Stream: "s", Group: "g"}
		change(&c)
		return c
	}
	pubsub := func(change func(*Config)) Config {
		c := Config{Function: "f", Run: nothing, Connector: Connector{URL: "redis://localhost"}, Mode: ModePubSub, Channels: []string{"c"}}
		change(&c)
		return c
	}
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	for name, c := range map[string]struct {
		cfg  Config
		want []string
	}{
		"stream":            {stream(func(*Config) {}), nil},
		"pubsub":            {pubsub(func(*Config) {}), nil},
		"driver":            {Config{Function: "f", Run: nothing, Driver: newFake(t, 0)}, nil},
		"all":               {Config{}, []string{"Function", "Run", "Connector.URL", "Mode"}},
		"mode":              {stream(func(c *Config) { c.Mode = "queue" }), []string{"Mode"}},
		"no channel":        {pubsub(func(c *Config) { c.Channels = nil }), []string{"Channels"}},
		"pattern alone":     {pubsub(func(c *Config) { c.Channels, c.Patterns = nil, []string{"a*"} }), nil},
		"empty names":       {pubsub(func(c *Config) { c.Channels, c.Patterns = []string{""}, []string{""} }), []string{"Channels", "Patterns"}},
		"sharded pattern":   {pubsub(func(c *Config) { c.Sharded, c.Patterns = true, []string{"a*"} }), []string{"Patterns"}},
		"stream of channel": {pubsub(func(c *Config) { c.Stream, c.Group, c.LastID = "s", "g", "0" }), []string{"Stream", "Group", "LastID"}},
		"deliveries":        {pubsub(func(c *Config) { c.MaxDeliveries = 1 }), []string{"MaxDeliveries"}},
		"sharded":           {pubsub(func(c *Config) { c.Sharded = true }), nil},
		"no stream":         {stream(func(c *Config) { c.Stream = "" }), []string{"Stream"}},
		"channel of stream": {stream(func(c *Config) { c.Channels = []string{"c"} }), []string{"Channels"}},
		"both of stream":    {stream(func(c *Config) { c.Channels, c.Patterns = []string{"c"}, []string{"a*"} }), []string{"Channels"}},
		"sharded stream":    {stream(func(c *Config) { c.Sharded = true }), []string{"Channels"}},
		"last id":           {stream(func(c *Config) { c.LastID = "yesterday" }), []string{"LastID"}},
		"last id key":       {stream(func(c *Config) { c.LastIDKey = "k" }), []string{"LastIDKey"}},
		"last id in stream": {stream(func(c *Config) { c.Group, c.LastIDKey = "", "s" }), []string{"LastIDKey"}},
		"negative": {stream(func(c *Config) {
			c.BlockTimeout, c.ClaimInterval, c.MaxIdleTime, c.ShutdownTimeout = -1, -1, -1, -1
			c.Concurrency, c.ProgressTimeout, c.Retry.Entry.Max = -1, -1, -1
		}), []string{"Concurrency", "ShutdownTimeout", "Retry", "BlockTimeout", "ProgressTimeout", "ClaimInterval", "MaxIdleTime"}},
		"shortest times": {stream(func(c *Config) {
			c.BlockTimeout, c.ClaimInterval, c.MaxIdleTime, c.ShutdownTimeout = time.Millisecond, time.Millisecond, time.Millisecond, 1
		}), nil},
		"too short times": {stream(func(c *Config) {
			c.BlockTimeout, c.ClaimInterval, c.MaxIdleTime = time.Millisecond-1, time.Millisecond-1, time.Millisecond-1
		}), []string{"BlockTimeout", "ClaimInterval", "MaxIdleTime"}},
		"places":                      {stream(func(c *Config) { c.Concurrency = 2 }), nil},
		"ordered":                     {stream(func(c *Config) { c.Ordered = true }), nil},
		"no dead letter":              {stream(func(c *Config) { c.NoDeadLetter = true }), nil},
		"no dead letter, and its key": {stream(func(c *Config) { c.NoDeadLetter, c.DeadLetter = true, "{s}:dead" }), []string{"NoDeadLetter"}},
		"ordered places":              {stream(func(c *Config) { c.Ordered, c.Concurrency = true, 2 }), []string{"Ordered"}},
		"no bound":                    {stream(func(c *Config) { c.MaxDeliveries = -1 }), nil},
		"dead letter of another slot": {stream(func(c *Config) { c.DeadLetter = "elsewhere" }), []string{"DeadLetter"}},
		"dead letter in the stream":   {stream(func(c *Config) { c.DeadLetter = "s" }), []string{"DeadLetter"}},
		"dead letter and none":        {stream(func(c *Config) { c.NoDeadLetter, c.MaxDeliveries = true, 1 }), []string{"NoDeadLetter"}},
		"no URL":                      {stream(func(c *Config) { c.Connector.URL = "" }), []string{"Connector.URL"}},
		"no scheme":                   {stream(func(c *Config) { c.Connector.URL = "localhost:6379" }), []string{"Connector.URL"}},
		"database":                    {stream(func(c *Config) { c.Connector.URL = "redis://localhost/x" }), []string{"Connector.URL"}},
		"option of the URL":           {stream(func(c *Config) { c.Connector.URL = "redis://localhost?poolsize=1" }), []string{"Connector.URL"}},
		"option of a cluster":         {stream(func(c *Config) { c.Connector.Cluster, c.Connector.URL = true, "redis://localhost?x=1" }), []string{"Connector.URL"}},
		"TLS without rediss":          {stream(func(c *Config) { c.Connector.TLS = &tls.Config{MinVersion: tls.VersionTLS12} }), []string{"Connector.TLS"}},
		"client and URL":              {stream(func(c *Config) { c.Connector.Client = client }), []string{"Connector.Client"}},
		"client and cluster":          {stream(func(c *Config) { c.Connector = Connector{Client: client, Cluster: true} }), []string{"Connector.Client"}},
		"client and TLS": {stream(func(c *Config) {
			c.Connector = Connector{Client: client, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
		}), []string{"Connector.Client"}},
		"client and name":     {stream(func(c *Config) { c.Connector = Connector{Client: client, Username: "app"} }), []string{"Connector.Client"}},
		"client and password": {stream(func(c *Config) { c.Connector = Connector{Client: client, Password: "x"} }), []string{"Connector.Client"}},
		"bad escape":          {stream(func(c *Config) { c.Connector.URL = "redis://app:%@localhost" }), []string{"Connector.URL"}},
		"client":              {stream(func(c *Config) { c.Connector = Connector{Client: client} }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.cfg.Validate()
			if got := wrongOptions(t, err); !slices.Equal(got, c.want) {
				t.Errorf("names %q, want %q; %v", got, c.want, err)
			}
			if err == nil {
				return
			}
			c.cfg.Logger = slog.New(slog.DiscardHandler)
			ended, end := context.WithCancel(t.Context())
			end()
			for _, ctx := range []context.Context{t.Context(), ended} {
				r := New(c.cfg)
				if got := r.Run(ctx); got == nil || got.Error() != err.Error() {
					t.Errorf("Run returned %v", got)
				}
				if h := r.Health(); h.State != BuildFailed || h.Ready || h.LastError == nil {
					t.Errorf("%+v", h)
				}
			}
		})
	}
}

func TestConnectorHidesSecretsInAllOutput(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for name, c := range map[string]Connector{
		"in the URL":     {URL: "redis://user:" + secret + "@localhost:6379/1"},
		"beside it":      {URL: "redis://localhost", Username: "user", Password: secret},
		"bad port":       {URL: "redis://user:" + secret + "@localhost:port"},
		"bad escape":     {URL: "redis://user:" + secret + "%@localhost"},
		"bad scheme":     {URL: "amqp://user:" + secret + "@localhost"},
		"bad option":     {URL: "redis://user:" + secret + "@localhost?x=y"},
		"bad path":       {URL: "redis://user:" + secret + "@localhost/a/b"},
		"as the name":    {URL: "redis://" + secret + "@local host"},
		"cluster":        {URL: "redis://user:" + secret + "@localhost?x=y", Cluster: true},
		"cluster scheme": {URL: "x://user:" + secret + "@localhost", Cluster: true},
	} {
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "connector", c)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "connector", &c)
		asJSON, err := json.Marshal(c)
		if err != nil {
			t.Error(err)
		}
		text := fmt.Sprintf("%v %+v %#v %s %v %s %s", c, &c, c, c, c.validate(), asJSON, log.String())
		if strings.Contains(text, secret) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestRetryOfTriggerOverridesConnectorAndDefaults(t *testing.T) {
	t.Parallel()
	c := Config{
		Connector: Connector{Retry: Retry{
			Reconnect: message.Backoff{Base: 1, Max: 2}, Entry: message.Backoff{Max: 3},
		}},
		Retry: Retry{Reconnect: message.Backoff{Max: 4}},
	}
	want := Retry{Reconnect: message.Backoff{Base: 1, Max: 4}, Entry: message.Backoff{Base: 100 * time.Millisecond, Max: 3}}
	if got := c.withDefaults().Retry; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	all := Retry{Reconnect: message.Backoff{Base: 5, Max: 6}, Entry: message.Backoff{Base: 7, Max: 8}}
	if got := (Config{Connector: c.Connector, Retry: all}).withDefaults().Retry; got != all {
		t.Errorf("%+v, want %+v", got, all)
	}
	want = Retry{
		Reconnect: message.Backoff{Base: 50 * time.Millisecond, Max: time.Second}, Entry: message.Backoff{Base: 100 * time.Millisecond, Max: 30 * time.Second},
	}
	if got := (Config{}).withDefaults().Retry; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestMaxDeliveriesOfAStreamHasADefault(t *testing.T) {
	t.Parallel()
	for want, c := range map[int]Config{
		20: {Mode: ModeStream}, 0: {Mode: ModePubSub}, 3: {Mode: ModeStream, MaxDeliveries: 3}, -1: {Mode: ModeStream, MaxDeliveries: -1},
	} {
		if got := c.withDefaults().MaxDeliveries; got != want {
			t.Errorf("%+v: %d deliveries, want %d", c, got, want)
		}
	}
	if got := (Config{Mode: ModeStream, NoDeadLetter: true}).withDefaults().MaxDeliveries; got != 0 {
		t.Errorf("without dead letters: %d deliveries, want no bound", got)
	}
}

func TestLogLinesHaveModeFunctionAndSourceAndUseTheConfiguredLogger(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		"mode=pubsub function=f channels=\"[c a*]\"": {Mode: ModePubSub, Channels: []string{"c"}, Patterns: []string{"a*"}},
		"mode=stream function=f stream=s":            {Mode: ModeStream, Stream: "s"},
		"mode=stream function=f stream=s group=g":    {Mode: ModeStream, Stream: "s", Group: "g"},
		"mode=custom function=f":                     {Driver: newFake(t, 0)},
		"mode=queue function=f":                      {Driver: newFake(t, 0), Mode: "queue", Group: "g"},
	} {
		var out strings.Builder
		c.Function, c.Logger = "f", slog.New(slog.NewTextHandler(&out, nil))
		c.withDefaults().logger().Info("x")
		if _, got, _ := strings.Cut(strings.TrimSpace(out.String()), "msg=x "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestStartErrorsNameTheOptionThatCausedThem(t *testing.T) {
	t.Parallel()
	reply := func(text string) error { return replyError(text) }
	for _, c := range []struct {
		err    error
		option string
		kind   error
	}{
		{reply("WRONGPASS invalid username-password pair or user is disabled."), "Connector.Password", ErrAuth},
		{reply("NOAUTH Authentication required."), "Connector.Password", ErrAuth},
		{reply("ERR invalid password"), "Connector.Password", ErrAuth},
		{reply("NOPERM User app has no permissions to run the 'xreadgroup' command"), "Connector.Username", ErrDenied},
		{reply("WRONGTYPE Operation against a key holding the wrong kind of value"), "Stream", ErrWrongType},
		{reply("MOVED 1 127.0.0.1:7000"), "Connector.Cluster", ErrUnreachable},
		{reply("ERR This instance has cluster support disabled"), "Connector.Cluster", ErrUnreachable},
		{reply("LOADING Redis is loading the dataset in memory"), "Connector.URL", ErrUnreachable},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "Connector.TLS", ErrTLS},
		{errors.New("remote error: tls: certificate required"), "Connector.TLS", ErrTLS},
		{errors.New("EOF"), "Connector.URL", ErrUnreachable},
		{reply("ERR unknown"), "Connector", nil},
	} {
		err := fmt.Errorf("wrapped: %w", c.err)
		got, ok := errors.AsType[*OptionError](explain(err))
		if !ok || got.Option != c.option || !errors.Is(got, c.err) || c.kind != nil && !errors.Is(got, c.kind) {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// replyError is an error reply of a server.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}
