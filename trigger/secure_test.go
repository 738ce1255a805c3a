package trigger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/child"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

const secret = "correct-horse-battery-staple"

// secured is a server with TLS, client certificates, and a user with the permissions of docs/acl.md.
type secured struct {
	*redistest.Server
	authority *authority
	admin     *redis.Client
	addr      string
	connector trigger.Connector // a working client
}

func newSecured(t testing.TB) *secured {
	t.Helper()
	redistest.Need(t)
	if bin, err := redistest.Find(); err == nil && !bin.HasTLS() {
		t.Skip("the server was built without TLS")
	}
	ca := newAuthority(t)
	ca.issue("server")
	free, err := child.FreePort()
	redistest.Must(t, err)
	port := strconv.Itoa(free)
	server := redistest.Single(t, redistest.Config(
		"tls-port "+port, "tls-cert-file "+ca.file("server.pem"), "tls-key-file "+ca.file("server.key"),
		"tls-ca-cert-file "+ca.file("ca.pem"), "tls-auth-clients yes",
	))
	s := &secured{Server: server, authority: ca, admin: server.Admin(t), addr: "127.0.0.1:" + port}
	s.connector = trigger.Connector{
		URL: "rediss://trigger:" + secret + "@" + s.addr + "?max_retries=-1", TLS: ca.config(ca.issue("client")),
	}
	s.setUser(t, append([]string{"reset", "on", ">" + secret, "~mails*", "~{mails}*"}, documentedRights(t, server)...)...)
	return s
}

func documentedRights(t testing.TB, server *redistest.Server) []string {
	t.Helper()
	rights, err := server.Binary().Rules("trigger")
	redistest.Must(t, err)
	if server.Binary().AtLeast(6, 2) {
		return append(rights, "&news*")
	}
	return append(rights, "+client|setinfo") // Redis 6.0 logs that it refuses this command, although it does not have it
}

func (s *secured) setUser(t testing.TB, rules ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "trigger"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	redistest.Must(t, s.admin.Do(t.Context(), args...).Err())
}

// configs returns the config of a trigger of every kind, by name.
func (s *secured) configs(t testing.TB, connector trigger.Connector, done *effects) map[string]trigger.Config {
	t.Helper()
	run := func(_ context.Context, msg *message.RawMessage) error {
		if data := text(t, msg); data != "bad" {
			done.add(data)
			return nil
		}
		return message.Permanent(errors.New("bad"))
	}
	group := trigger.Config{
		Run: run, Connector: connector, Mode: trigger.ModeStream, Stream: "mails", Group: "g",
		ClaimInterval: 10 * time.Millisecond, MaxIdleTime: 30 * time.Millisecond,
	}
	plain := group
	plain.Group, plain.LastID, plain.LastIDKey = "", "0", "mails:last"
	pubsub := trigger.Config{Run: run, Connector: connector, Mode: trigger.ModePubSub, Channels: []string{"news"}}
	sharded := pubsub
	sharded.Sharded = true
	return map[string]trigger.Config{"group": group, "plain": plain, "pubsub": pubsub, "sharded": sharded}
}

func TestTriggersWorkOverTLSWithDocumentedRights(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	for name := range s.configs(t, s.connector, nil) {
		done := &effects{}
		cfg := s.configs(t, s.connector, done)[name]
		if cfg.Sharded && !s.Binary().AtLeast(7, 0) {
			continue
		}
		tr := begin(t, cfg)
		redistest.Eventually(t, name+" to run", func() bool {
			for _, data := range []string{"fine", "bad"} {
				s.admin.XAdd(t.Context(), &redis.XAddArgs{Stream: "mails", Values: []any{"data", data}})
				s.admin.Publish(t.Context(), "news", data)
				s.admin.Do(t.Context(), "SPUBLISH", "news", data)
			}
			stats := tr.Stats()
			return len(done.list()) > 3 && (stats.DeadLettered > 3 || stats.Dropped > 3)
		})
		tr.stop()
		if log := tr.log.String(); strings.Contains(log, secret) || strings.Contains(log, "NOPERM") {
			t.Errorf("%s: %s", name, log)
		}
	}
	if denied := fmt.Sprint(s.admin.Do(t.Context(), "ACL", "LOG").Val()); denied != "[]" {
		t.Errorf("denied: %s", denied)
	}
}

func TestStartErrorNamesOptionAndCauseButNoSecret(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	s.admin.HSet(t.Context(), "mails:hash", "f", "v")
	change := func(change func(*trigger.Connector)) trigger.Connector {
		c := s.connector
		change(&c)
		return c
	}
	plainURL := func(c *trigger.Connector, url string) { c.URL, c.TLS = url, nil }
	for _, c := range []struct {
		name      string
		connector trigger.Connector
		option    string
		kind      error
		says      string
	}{
		{"wrong password", change(func(c *trigger.Connector) { c.Password = "wrong-" + secret }), "Connector.Password", trigger.ErrAuth, "WRONGPASS"},
		{"wrong user", change(func(c *trigger.Connector) { c.Username = "nobody" }), "Connector.Password", trigger.ErrAuth, "WRONGPASS"},
		{"unknown CA", change(func(c *trigger.Connector) { c.TLS = newAuthority(t).config(s.authority.issue("other")) }), "Connector.TLS", trigger.ErrTLS, "unknown authority"},
		{"wrong name", change(func(c *trigger.Connector) { c.TLS = s.connector.TLS.Clone(); c.TLS.ServerName = "redis.internal" }), "Connector.TLS", trigger.ErrTLS, "redis.internal"},
		{"TLS to a plain port", change(func(c *trigger.Connector) {
			c.URL = "rediss://trigger:" + secret + "@" + s.Addr() + "?max_retries=-1&dial_timeout=300ms"
		}), "Connector.URL", trigger.ErrUnreachable, "uses TLS"},
		{"no TLS to a port of it", change(func(c *trigger.Connector) {
			plainURL(c, "redis://trigger:"+secret+"@"+s.addr+"?max_retries=-1")
		}), "Connector.URL", trigger.ErrUnreachable, "uses TLS"},
		{"unknown host", change(func(c *trigger.Connector) {
			plainURL(c, "redis://trigger:"+secret+"@no-such-host.invalid:6379?max_retries=-1&dial_timeout=2s")
		}), "Connector.URL", trigger.ErrUnreachable, "no-such-host.invalid"},
		{"nobody there", change(func(c *trigger.Connector) {
			plainURL(c, "redis://trigger:"+secret+"@127.0.0.1:1?max_retries=-1")
		}), "Connector.URL", trigger.ErrUnreachable, "connection refused"},
		{"cluster", change(func(c *trigger.Connector) {
			plainURL(c, "redis://"+s.Addr()+"?max_retries=-1")
			c.Cluster = true
		}), "Connector.Cluster", trigger.ErrUnreachable, "cluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for name, cfg := range s.configs(t, c.connector, &effects{}) {
				if said := wantBuildFailed(t, cfg, c.option, c.kind); !strings.Contains(said, c.says) || strings.Contains(said, secret) {
					t.Errorf("%s: want %q and no secret in %s", name, c.says, said)
				}
			}
		})
	}
	t.Run("no client certificate", func(t *testing.T) {
		t.Parallel()
		r := start(t, s.configs(t, change(func(c *trigger.Connector) { c.TLS = s.authority.config() }), &effects{})["group"])
		redistest.Eventually(t, "it to give up", func() bool { return r.Health().State == trigger.BuildFailed })
		if err := r.Health().LastError; !errors.Is(err, trigger.ErrTLS) && !errors.Is(err, trigger.ErrUnreachable) {
			t.Error(err)
		}
	})
	t.Run("no stream", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"group", "plain"} {
			cfg := s.configs(t, s.connector, &effects{})[name]
			cfg.Stream, cfg.LastIDKey = "mails:hash", ""
			if cfg.Group != "" {
				cfg.DeadLetter, cfg.NoDeadLetter = "", true
			}
			wantBuildFailed(t, cfg, "Stream", trigger.ErrWrongType)
		}
	})
	t.Run("not granted", func(t *testing.T) {
		t.Parallel()
		for name, cfg := range s.configs(t, s.connector, &effects{}) {
			if cfg.Mode == trigger.ModePubSub {
				if !s.Binary().AtLeast(6, 2) {
					continue
				}
				cfg.Channels = []string{"weather"}
			} else {
				cfg.Stream = "letters"
			}
			if said := wantBuildFailed(t, cfg, "Connector.Username", trigger.ErrDenied); !strings.Contains(said, "NOPERM") {
				t.Errorf("%s: %s", name, said)
			}
		}
	})
}

func TestRefusedPasswordAfterASuccessIsAnOutage(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	names := []string{"group", "plain", "pubsub"}
	all := map[string]*started{}
	for _, name := range names {
		all[name] = begin(t, s.configs(t, s.connector, &effects{})[name])
	}
	s.setUser(t, "resetpass", ">another-"+secret)
	s.admin.Do(t.Context(), "CLIENT", "KILL", "USER", "trigger")
	for _, name := range names {
		tr := all[name]
		redistest.Eventually(t, name+" to notice", func() bool {
			h := tr.Health()
			return !h.Ready && slices.Contains([]trigger.State{trigger.Reconnecting, trigger.Backoff}, h.State) &&
				h.LastError != nil && strings.Contains(h.LastError.Error(), "WRONGPASS")
		})
	}
	s.setUser(t, "resetpass", ">"+secret)
	for _, name := range names {
		redistest.Eventually(t, name+" to be back", func() bool { return all[name].Health().Ready })
		all[name].stop()
		if log := all[name].log.String(); strings.Contains(log, secret) || !strings.Contains(log, "WRONGPASS") {
			t.Errorf("%s: %s", name, log)
		}
	}
	if log := said.String(); strings.Contains(log, secret) {
		t.Errorf("go-redis logs: %s", log)
	}
}
