package sqltx

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/documented"
)

func TestConfigsHaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, OutboxPublisherConfig{}.withDefaults())
	documented.Defaults(t, CleanupConfig{}.withDefaults())
}

func TestConfigsRejectValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, OutboxPublisherConfig{DB: new(sql.DB)}, func(c OutboxPublisherConfig) error { return c.withDefaults().validate() })
	documented.Bounds(t, CleanupConfig{DB: new(sql.DB)}, func(c CleanupConfig) error { return c.withDefaults().validate() })
}

func TestOutboxPublisherRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]OutboxPublisherConfig{
		"OutboxPublisherConfig.DB": {Dialect: SQLite()},
		"OrderingKeys of mine":     {DB: new(sql.DB), Dialect: Dialect{Name: "mine", Quote: `"`}},
		"BackoffCap":               {DB: new(sql.DB), Dialect: SQLite(), BackoffBase: time.Second, BackoffCap: time.Second - 1},
		"":                         {DB: new(sql.DB), Dialect: SQLite(), BackoffBase: time.Second, BackoffCap: time.Second},
	} {
		if err := NewOutboxPublisher(cfg).err; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one about %q", err, want)
		}
	}
}
