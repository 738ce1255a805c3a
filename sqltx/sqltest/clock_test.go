package sqltest_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/luatx/luatx/sqltx/sqltest"
)

// clock is a session of MariaDB whose clock a test sets. Its time zone is that of Berlin.
type clock struct {
	*sql.Conn
	t testing.TB
}

func newClock(t *testing.T, d sqltest.Database) clock {
	t.Helper()
	conn, err := d.Open(t).Conn(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := clock{conn, t}
	c.set(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))
	if c.read("HOUR(NOW())") != 14 {
		t.Skip("the server has no time zones; install tzdata")
	}
	return c
}

func (c clock) set(at time.Time) {
	c.t.Helper()
	_, err := c.ExecContext(c.t.Context(), "SET timestamp = ? / 1000", at.UnixMilli())
	must(c.t, err)
}

func (c clock) read(expression string, args ...any) (n int64) {
	c.t.Helper()
	must(c.t, c.QueryRowContext(c.t.Context(), "SELECT "+expression, args...).Scan(&n))
	return n
}

func TestTimeOfTheDatabaseGoesOnWhenTheClocksChange(t *testing.T) {
	t.Parallel()
	d := sqltest.MariaDB(t)
	c := newClock(t, d)
	for _, change := range []time.Time{time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC)} {
		for at := change.Add(-2 * time.Hour); at.Before(change.Add(2 * time.Hour)); at = at.Add(15*time.Minute + 7*time.Millisecond) {
			c.set(at)
			if got := time.UnixMilli(c.read(d.Dialect.NowMillis)); !got.Equal(at) {
				t.Errorf("at %v it is %v", at, got.UTC())
			}
		}
	}
}

func TestRetentionIsAsLongAsEverWhenTheClocksChange(t *testing.T) {
	t.Parallel()
	d := sqltest.MariaDB(t)
	c := newClock(t, d)
	for _, change := range []time.Time{time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC)} {
		table := sqltest.Table("times")
		_, err := c.ExecContext(t.Context(), "CREATE TABLE "+table+" (created_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6))")
		must(t, err)
		c.set(change.Add(-72 * time.Hour))
		_, err = c.ExecContext(t.Context(), "INSERT INTO "+table+" VALUES ()")
		must(t, err)
		c.set(change.Add(72 * time.Hour))
		for retention, want := range map[time.Duration]int64{144*time.Hour - time.Millisecond: 1, 144 * time.Hour: 0, 144*time.Hour + time.Millisecond: 0} {
			if n := c.read("COUNT(*) FROM "+table+" WHERE created_at < "+d.Dialect.Ago, retention.Milliseconds()); n != want {
				t.Errorf("%d rows are older than %v, want %d", n, retention, want)
			}
		}
	}
}
