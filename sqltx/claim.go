package sqltx

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const columns = "id, topic, event_type, data, data_base64, attributes, ordering_key, attempts"

// claim claims a batch and reports whether there may be more rows to claim at once. Events with and without an ordering key take
// turns in being claimed first, so that neither kind keeps the other waiting.
func (s *pump) claim(ctx context.Context) (more bool) {
	ctx, cancel := context.WithTimeout(ctx, min(s.cfg.Lease, writeTimeout))
	defer cancel()
	s.claims++
	lease, until, room := fmt.Sprintf("%s/%d", s.owner, s.claims), time.Now().Add(s.cfg.Lease), s.room()
	kinds := []func(context.Context, string, int) ([]row, bool, error){s.leaseFree, s.leaseHeads}
	if s.claims%2 == 0 {
		slices.Reverse(kinds)
	}
	var rows []row
	var failure error
	for _, kind := range kinds {
		if len(rows) == room {
			more = true
			break
		}
		some, left, err := kind(ctx, lease, room-len(rows))
		rows, more, failure = append(rows, some...), more || left, errors.Join(failure, err)
	}
	if failure != nil {
		s.cfg.Logger.Error("outbox: claim failed", "table", s.cfg.Table, "error", failure)
		more = false
	}
	var heads []*held
	for _, r := range rows {
		h := &held{row: r, lease: lease, counted: true, until: until}
		s.holds[h] = true
		switch {
		case r.attempts > s.cfg.Attempts: // every process that claimed it has died
			s.settle(h, parked, errors.New("no attempt was settled"))
		case r.key != "":
			heads = append(heads, h)
		default:
			s.ready = append(s.ready, h)
		}
	}
	if len(heads) > 0 {
		if err := s.claimKeys(ctx, lease, heads, room-len(rows)); err != nil {
			s.cfg.Logger.Error("outbox: claim of ordered events failed", "table", s.cfg.Table, "error", err)
			return false
		}
	}
	return more
}

// leaseFree leases due rows without an ordering key, and reports whether there may be more.
func (s *pump) leaseFree(ctx context.Context, lease string, room int) ([]row, bool, error) {
	rows, err := s.leaseRows(ctx, lease, room, "o.ordering_key IS NULL")
	return rows, len(rows) == room, err
}

// leaseRows leases due rows that fulfil a condition, and counts an attempt for each. In the condition, %[1]s is the table, and o a
// row of it.
func (s *pump) leaseRows(ctx context.Context, lease string, n int, condition string, args ...any) (rows []row, err error) {
	due := "SELECT o.id FROM %[1]s o WHERE o.published = FALSE AND o.parked = FALSE AND o.next_attempt_at <= NOW_MS AND " + condition +
		" ORDER BY o.next_attempt_at, o.id LIMIT ?" + s.dialect.SkipLocked
	args = append(args, n)
	const set = " SET lease = ?, next_attempt_at = NOW_MS + ?, attempts = attempts + 1 WHERE id IN "
	if s.dialect.Returning {
		rows, err = query(ctx, s.cfg.DB, event, s.dialect.statement(
			"WITH due AS MATERIALIZED ("+due+") UPDATE %[1]s"+set+"(SELECT id FROM due) RETURNING "+columns, s.table),
			append(args, lease, s.cfg.Lease.Milliseconds())...)
	} else {
		err = inTx(ctx, s.cfg.DB, s.dialect.Isolation, func(tx *sql.Tx) error {
			ids, err := query(ctx, tx, value[int64], s.dialect.statement(due, s.table), args...)
			if err != nil || len(ids) == 0 {
				return err
			}
			in := "(" + marks(len(ids)) + ")"
			update := s.dialect.statement("UPDATE %[1]s"+set+in, s.table)
			if _, err := tx.ExecContext(ctx, update, append([]any{lease, s.cfg.Lease.Milliseconds()}, anys(ids)...)...); err != nil {
				return err
			}
			rows, err = query(ctx, tx, event, s.dialect.statement("SELECT "+columns+" FROM %[1]s WHERE id IN "+in, s.table), anys(ids)...)
			return err
		})
	}
	if err != nil {
		return nil, err // without a commit there is no lease
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.id, b.id) })
	return rows, nil
}

// renew extends the leases of all held rows.
func (s *pump) renew(ctx context.Context) {
	if len(s.holds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Lease/3)
	defer cancel()
	leases, ids := map[string]bool{}, []any{}
	until := time.Now().Add(s.cfg.Lease)
	for h := range s.holds {
		leases[h.lease] = true
		ids = append(ids, h.id)
	}
	args := []any{s.cfg.Lease.Milliseconds()}
	for lease := range leases {
		args = append(args, lease)
	}
	_, err := s.cfg.DB.ExecContext(ctx, s.dialect.statement(
		"UPDATE %[1]s SET next_attempt_at = NOW_MS + ? WHERE published = FALSE AND lease IN ("+marks(len(leases))+") AND id IN ("+marks(len(ids))+")", s.table),
		append(args, ids...)...)
	if err != nil {
		s.cfg.Logger.Warn("outbox: lease renewal failed", "table", s.cfg.Table, "events", len(ids), "error", err)
		return
	}
	for h := range s.holds {
		if !time.Now().After(h.until) { // otherwise, another publisher may have claimed it
			h.until = until
		}
	}
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query returns the result of scan for each row of a query, or only an error.
func query[T any](ctx context.Context, db querier, scan func(*sql.Rows) (T, error), statement string, args ...any) (out []T, err error) {
	rows, err := db.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err returns the same error
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

func value[T any](rows *sql.Rows) (v T, err error) {
	err = rows.Scan(&v)
	return v, err
}

func event(rows *sql.Rows) (r row, err error) {
	err = r.scan(rows)
	return r, err
}

// scan scans the columns of an event and further ones into more.
func (r *row) scan(rows *sql.Rows, more ...any) error {
	var key sql.NullString
	err := rows.Scan(append([]any{&r.id, &r.topic, &r.eventType, &r.data, &r.base64, &r.attributes, &key, &r.attempts}, more...)...)
	r.key = key.String
	return err
}

// inTx runs fn in a separate transaction, and commits it unless fn fails.
func inTx(ctx context.Context, db *sql.DB, isolation sql.IsolationLevel, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: isolation})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after the commit
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

// clip truncates an error's text to the stored size.
func clip(err error) string {
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "")
	}
	return text
}
