package trigger

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func TestClientsRetryOnceAndTakeTLSFromTheConnectorAndItsNameFromTheURL(t *testing.T) {
	t.Parallel()
	pool := x509.NewCertPool()
	for query, retries := range map[string]int{"": 1, "?max_retries=5": 5} {
		for _, cluster := range []bool{false, true} {
			c := Connector{URL: "rediss://app:secret@redis.shop:7000" + query, Cluster: cluster, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
			single, many, err := c.options()
			if err != nil || (many != nil) != cluster || (single != nil) == cluster {
				t.Fatalf("%v, %v, %v", single, many, err)
			}
			if cluster {
				single = &redis.Options{
					Addr: many.Addrs[0], Username: many.Username, Password: many.Password, MaxRetries: many.MaxRetries, DialerRetries: many.DialerRetries,
					ContextTimeoutEnabled: many.ContextTimeoutEnabled, TLSConfig: many.TLSConfig, MaintNotificationsConfig: many.MaintNotificationsConfig,
				}
			}
			if single.MaxRetries != retries || single.DialerRetries != 1 || !single.ContextTimeoutEnabled || single.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled {
				t.Errorf("cluster %t: %+v", cluster, single)
			}
			if single.Addr != "redis.shop:7000" || single.Username != "app" || single.Password != "secret" {
				t.Errorf("cluster %t: %s as %s with %s", cluster, single.Addr, single.Username, single.Password)
			}
			if got := single.TLSConfig; got.RootCAs != pool || got.ServerName != "redis.shop" {
				t.Errorf("cluster %t: TLS of %s, with the given CAs: %t", cluster, got.ServerName, got.RootCAs == pool)
			}
		}
	}
}

func TestClientOfAConnectorMayBeClosedTwice(t *testing.T) {
	t.Parallel()
	_, end, err := Connector{URL: "redis://localhost"}.connect()
	if err := errors.Join(err, end(), end()); err != nil {
		t.Error(err)
	}
}
