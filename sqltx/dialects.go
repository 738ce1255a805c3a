package sqltx

import (
	"database/sql"
	"slices"
	"strings"
)

// PostgresInboxSchema and PostgresOutboxSchema create the tables on PostgreSQL; %[1]s is the quoted name of the table.
const (
	PostgresInboxSchema = `CREATE TABLE IF NOT EXISTS %[1]s (
    subscriber  TEXT NOT NULL,
    source      TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (subscriber, source, message_id)
)`
	PostgresOutboxSchema = `CREATE TABLE IF NOT EXISTS %[1]s (
    id               BIGSERIAL PRIMARY KEY,
    created_at       TIMESTAMPTZ NOT NULL DEFAULT now(),
    topic            TEXT NOT NULL,
    event_type       TEXT NOT NULL,
    data             JSON NOT NULL,
    data_base64      BOOLEAN NOT NULL DEFAULT FALSE,
    attributes       JSON NOT NULL,
    ordering_key     TEXT,
    published        BOOLEAN NOT NULL DEFAULT FALSE,
    parked           BOOLEAN NOT NULL DEFAULT FALSE,
    attempts         INTEGER NOT NULL DEFAULT 0,
    next_attempt_at  BIGINT NOT NULL DEFAULT 0,
    lease            TEXT,
    last_error       TEXT
)`
)

// recursiveKeys jumps from one ordering key to the next one in the index.
const recursiveKeys = `WITH RECURSIVE k(ordering_key, n) AS (
	SELECT MIN(ordering_key), 1 FROM %[1]s WHERE published = FALSE AND ordering_key > ?
	UNION ALL SELECT (SELECT MIN(o.ordering_key) FROM %[1]s o WHERE o.published = FALSE AND o.ordering_key > k.ordering_key), n + 1
		FROM k WHERE ordering_key IS NOT NULL AND n < ?)
	SELECT ordering_key FROM k WHERE ordering_key IS NOT NULL`

// PostgreSQL returns the dialect of PostgreSQL 13 and later.
func PostgreSQL() Dialect {
	return Dialect{
		Name:     "PostgreSQL",
		Numbered: true,
		Quote:    `"`,
		InboxSchema: []string{
			PostgresInboxSchema,
			`CREATE INDEX IF NOT EXISTS "%[2]s_created" ON %[1]s (created_at)`,
		},
		OutboxSchema: []string{
			PostgresOutboxSchema,
			`CREATE INDEX IF NOT EXISTS "%[2]s_due" ON %[1]s (next_attempt_at, id) WHERE published = FALSE AND parked = FALSE AND ordering_key IS NULL`,
			`CREATE INDEX IF NOT EXISTS "%[2]s_order" ON %[1]s (ordering_key, id) WHERE published = FALSE AND ordering_key IS NOT NULL`,
			`CREATE INDEX IF NOT EXISTS "%[2]s_leased" ON %[1]s (ordering_key, next_attempt_at) WHERE published = FALSE AND ordering_key IS NOT NULL AND lease IS NOT NULL`,
			`CREATE INDEX IF NOT EXISTS "%[2]s_parked" ON %[1]s (id) WHERE parked = TRUE`,
			`CREATE INDEX IF NOT EXISTS "%[2]s_created" ON %[1]s (created_at)`,
		},
		InitLock:     `SELECT pg_advisory_xact_lock(7237954630001)`, // IF NOT EXISTS fails for concurrent creations
		OnDuplicate:  ` ON CONFLICT DO NOTHING`,
		SkipLocked:   ` FOR UPDATE SKIP LOCKED`,
		Returning:    true,
		NowMillis:    `CAST(extract(epoch FROM now()) * 1000 AS BIGINT)`,
		Ago:          `now() - CAST(? AS BIGINT) * interval '1 millisecond'`,
		DeleteSome:   `DELETE FROM %[1]s WHERE %[2]s AND ctid = ANY (ARRAY(SELECT ctid FROM %[1]s WHERE %[2]s LIMIT ? FOR UPDATE SKIP LOCKED))`, // partitions may have the same ctid
		OrderingKeys: recursiveKeys,
		Notify:       `SELECT pg_notify(?, '')`,
		Isolation:    sql.LevelReadCommitted,
		Retryable: func(err error) bool {
			return slices.Contains([]string{"40001", "40P01"}, sqlState(err)) // serialization failure, deadlock
		},
	}
}

// MySQLInboxSchema and MySQLOutboxSchema create the tables on MySQL and MariaDB. Ids are bytes, because texts are compared
// without case and trailing spaces. Events are texts, because MySQL's JSON type does not keep their bytes.
const (
	MySQLInboxSchema = `CREATE TABLE IF NOT EXISTS %[1]s (
    subscriber  VARBINARY(255) NOT NULL,
    source      VARBINARY(255) NOT NULL,
    message_id  VARBINARY(255) NOT NULL,
    created_at  TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    deliveries  INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (subscriber, source, message_id),
    INDEX luatx_created (created_at)
) ENGINE=InnoDB`
	MySQLOutboxSchema = `CREATE TABLE IF NOT EXISTS %[1]s (
    id               BIGINT AUTO_INCREMENT PRIMARY KEY,
    created_at       TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    topic            VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    event_type       VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    data             LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    data_base64      BOOLEAN NOT NULL DEFAULT FALSE,
    attributes       LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    ordering_key     VARBINARY(255),
    published        BOOLEAN NOT NULL DEFAULT FALSE,
    parked           BOOLEAN NOT NULL DEFAULT FALSE,
    attempts         INTEGER NOT NULL DEFAULT 0,
    next_attempt_at  BIGINT NOT NULL DEFAULT 0,
    lease            VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin,
    last_error       TEXT CHARACTER SET utf8mb4,
    INDEX luatx_due (published, parked, ordering_key, next_attempt_at, id),
    INDEX luatx_order (published, ordering_key, id),
    INDEX luatx_leased (ordering_key, published, lease),
    INDEX luatx_created (published, created_at)
) ENGINE=InnoDB`
)

// MySQL returns the dialect of MySQL 8.0.1 and later, and of MariaDB 10.6 and later.
func MySQL() Dialect {
	return Dialect{
		Name:         "MySQL",
		Quote:        "`",
		InboxSchema:  []string{MySQLInboxSchema},
		OutboxSchema: []string{MySQLOutboxSchema},
		// INSERT IGNORE would treat a row that cannot be written as a duplicate. The counter distinguishes the two, regardless of
		// how the connection counts rows.
		OnDuplicate: ` ON DUPLICATE KEY UPDATE deliveries = deliveries + 1`,
		SkipLocked:  ` FOR UPDATE SKIP LOCKED`,
		// NOW is in the time zone of the session, in which an hour repeats or is missing when the clocks change.
		NowMillis:    `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000`,
		Ago:          `FROM_UNIXTIME(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1000000 - ? / 1000)`,
		DeleteSome:   `DELETE FROM %[1]s WHERE %[2]s LIMIT ?`,
		OrderingKeys: `SELECT ordering_key FROM %[1]s WHERE published = FALSE AND ordering_key > ? GROUP BY ordering_key ORDER BY ordering_key LIMIT ?`,
		// After a deadlock, the server has rolled back. It would commit each following statement separately, unless autocommit is
		// off.
		Before:    []string{`SET autocommit = 0`},
		After:     []string{`SET autocommit = 1`},
		Guarded:   true,
		Isolation: sql.LevelReadCommitted, // no gap locks that block inserts of others
		Retryable: func(err error) bool {
			number, ok := errorNumber(err, "Number")
			return ok && (number == 1213 || number == 1020) // deadlock, snapshot too old
		},
	}
}

// SQLiteInboxSchema and SQLiteOutboxSchema create the tables on SQLite.
const (
	SQLiteInboxSchema = `CREATE TABLE IF NOT EXISTS %[1]s (
    subscriber  TEXT NOT NULL,
    source      TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    created_at  TEXT NOT NULL DEFAULT (strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now')),
    PRIMARY KEY (subscriber, source, message_id)
)`
	SQLiteOutboxSchema = `CREATE TABLE IF NOT EXISTS %[1]s (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at       TEXT NOT NULL DEFAULT (strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now')),
    topic            TEXT NOT NULL,
    event_type       TEXT NOT NULL,
    data             TEXT NOT NULL,
    data_base64      BOOLEAN NOT NULL DEFAULT FALSE,
    attributes       TEXT NOT NULL,
    ordering_key     TEXT,
    published        BOOLEAN NOT NULL DEFAULT FALSE,
    parked           BOOLEAN NOT NULL DEFAULT FALSE,
    attempts         INTEGER NOT NULL DEFAULT 0,
    next_attempt_at  INTEGER NOT NULL DEFAULT 0,
    lease            TEXT,
    last_error       TEXT
)`
)

// SQLite returns the dialect of SQLite 3.35 and later. Open the database with transactions that lock at once (_txlock=immediate)
// and with a busy timeout, as docs/sql.md shows. Otherwise, two transactions that read before they write block each other.
func SQLite() Dialect {
	return Dialect{
		Name:  "SQLite",
		Quote: `"`,
		InboxSchema: []string{
			SQLiteInboxSchema,
			`CREATE INDEX IF NOT EXISTS %[3]s"%[2]s_created" ON "%[2]s" (created_at)`,
		},
		OutboxSchema: []string{
			SQLiteOutboxSchema,
			`CREATE INDEX IF NOT EXISTS %[3]s"%[2]s_due" ON "%[2]s" (next_attempt_at, id) WHERE published = FALSE AND parked = FALSE AND ordering_key IS NULL`,
			`CREATE INDEX IF NOT EXISTS %[3]s"%[2]s_order" ON "%[2]s" (ordering_key, id) WHERE published = FALSE AND ordering_key IS NOT NULL`,
			`CREATE INDEX IF NOT EXISTS %[3]s"%[2]s_leased" ON "%[2]s" (ordering_key, next_attempt_at) WHERE published = FALSE AND ordering_key IS NOT NULL AND lease IS NOT NULL`,
			`CREATE INDEX IF NOT EXISTS %[3]s"%[2]s_parked" ON "%[2]s" (id) WHERE parked = TRUE`,
			`CREATE INDEX IF NOT EXISTS %[3]s"%[2]s_created" ON "%[2]s" (created_at)`,
		},
		OnDuplicate:  ` ON CONFLICT DO NOTHING`,
		Returning:    true,
		NowMillis:    `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`,
		Ago:          `strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (? / -1000.0) || ' seconds')`,
		DeleteSome:   `DELETE FROM %[1]s WHERE rowid IN (SELECT rowid FROM %[1]s WHERE %[2]s LIMIT ?)`,
		OrderingKeys: recursiveKeys,
		Guarded:      true,
		Retryable: func(err error) bool {
			number, ok := errorNumber(err, "Code")
			return ok && (number&0xff == 5 || number&0xff == 6) || err != nil && strings.Contains(err.Error(), "database is locked")
		},
	}
}
