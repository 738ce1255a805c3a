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

// due selects the rows that may be claimed. It excludes rows whose ordering key has an earlier unpublished row or a leased one.
// %[2]s is a further condition on the earlier row.
const due = `o.published = FALSE AND o.parked = FALSE AND o.next_attempt_at <= NOW_MS
	AND (o.ordering_key IS NULL OR (
		NOT EXISTS (SELECT 1 FROM %[1]s e WHERE e.ordering_key = o.ordering_key AND e.published = FALSE AND e.id < o.id%[2]s)
		AND NOT EXISTS (SELECT 1 FROM %[1]s l WHERE l.ordering_key = o.ordering_key AND l.ordering_key IS NOT NULL AND l.id <> o.id AND l.published = FALSE AND l.lease IS NOT NULL AND l.next_attempt_at > NOW_MS)))
	ORDER BY o.next_attempt_at, o.id LIMIT ?`

// claim claims a batch and reports whether there may be more rows to claim at once.
func (s *pump) claim(ctx context.Context) (more bool) {
	ctx, cancel := context.WithTimeout(ctx, min(s.cfg.Lease, writeTimeout))
	defer cancel()
	s.claims++
	lease, until, room := fmt.Sprintf("%s/%d", s.owner, s.claims), time.Now().Add(s.cfg.Lease), s.room()
	rows, err := s.leaseRows(ctx, lease, room)
	if err != nil {
		s.cfg.Logger.Error("outbox: claim failed", "table", s.cfg.Table, "error", err)
		return false
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
		if err = s.claimKeys(ctx, lease, heads, room-len(rows)); err != nil {
			s.cfg.Logger.Error("outbox: claim of ordered events failed", "table", s.cfg.Table, "error", err)
			return false
		}
	}
	return len(rows) == room
}

// claimKeys checks the ordering keys of claimed rows and claims more of their rows. If rows of one key commit late, two
// publishers may have claimed some at the same time. Both claims are committed now, so at least the later one sees the other and
// gives way.
func (s *pump) claimKeys(ctx context.Context, lease string, heads []*held, room int) error {
	others, err := s.contested(ctx, lease, heads)
	if err != nil {
		for _, h := range heads {
			s.giveBack(h)
		}
		return err
	}
	var mine []*held
	for _, h := range heads {
		if slices.Contains(others, h.key) {
			s.giveBack(h)
			continue
		}
		mine = append(mine, h)
		s.lanes[h.key] = &lane{head: h}
		s.ready = append(s.ready, h)
	}
	if room <= 0 || len(mine) == 0 {
		return nil
	}
	later, err := s.followers(ctx, lease, mine, room)
	for _, h := range later {
		s.holds[h] = true
		if err != nil {
			s.giveBack(h)
			continue
		}
		l := s.lanes[h.key]
		l.later = append(l.later, h)
	}
	return err
}

// leaseRows leases the due rows and counts an attempt for each.
func (s *pump) leaseRows(ctx context.Context, lease string, n int) (rows []row, err error) {
	earlier := ""
	if s.cfg.SkipParked {
		earlier = " AND e.parked = FALSE"
	}
	if s.dialect.Returning {
		rows, err = query(ctx, s.cfg.DB, event, s.dialect.statement(
			"WITH due AS MATERIALIZED (SELECT o.id FROM %[1]s o WHERE "+due+s.dialect.SkipLocked+")"+
				" UPDATE %[1]s SET lease = ?, next_attempt_at = NOW_MS + ?, attempts = attempts + 1 WHERE id IN (SELECT id FROM due) RETURNING "+columns,
			s.table, earlier), n, lease, s.cfg.Lease.Milliseconds())
	} else {
		err = inTx(ctx, s.cfg.DB, s.dialect.Isolation, func(tx *sql.Tx) error {
			ids, err := query(ctx, tx, value[int64], s.dialect.statement("SELECT o.id FROM %[1]s o WHERE "+due+s.dialect.SkipLocked, s.table, earlier), n)
			if err != nil || len(ids) == 0 {
				return err
			}
			in := "id IN (" + marks(len(ids)) + ")"
			update := s.dialect.statement("UPDATE %[1]s SET lease = ?, next_attempt_at = NOW_MS + ?, attempts = attempts + 1 WHERE "+in, s.table)
			if _, err := tx.ExecContext(ctx, update, append([]any{lease, s.cfg.Lease.Milliseconds()}, anys(ids)...)...); err != nil {
				return err
			}
			rows, err = query(ctx, tx, event, s.dialect.statement("SELECT "+columns+" FROM %[1]s WHERE "+in, s.table), anys(ids)...)
			return err
		})
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.id, b.id) })
	return rows, err
}

// contested returns the ordering keys that another lease also holds.
func (s *pump) contested(ctx context.Context, lease string, heads []*held) ([]string, error) {
	args := []any{lease}
	for _, h := range heads {
		args = append(args, h.key)
	}
	return query(ctx, s.cfg.DB, value[string], s.dialect.statement(
		"SELECT DISTINCT ordering_key FROM %[1]s WHERE published = FALSE AND lease IS NOT NULL AND lease <> ? AND next_attempt_at > NOW_MS AND ordering_key IN ("+marks(len(heads))+")",
		s.table), args...)
}

// followers leases the rows behind claimed ones, in order. No other publisher can claim them, because the rows before them are
// not published.
func (s *pump) followers(ctx context.Context, lease string, heads []*held, room int) (later []*held, err error) {
	first := map[string]*held{}
	args := []any{}
	for _, h := range heads {
		first[h.key] = h
		args = append(args, h.key)
	}
	type candidate struct {
		row
		isParked, waits bool
	}
	scan := func(rows *sql.Rows) (c candidate, err error) {
		err = c.scan(rows, &c.isParked, &c.waits)
		return c, err
	}
	found, err := query(ctx, s.cfg.DB, scan, s.dialect.statement(
		"SELECT "+columns+", parked, next_attempt_at > NOW_MS FROM %[1]s WHERE published = FALSE AND ordering_key IN ("+marks(len(heads))+") ORDER BY id LIMIT ?",
		s.table), append(args, room+len(heads))...)
	if err != nil {
		return nil, err
	}
	ids := []any{}
	for _, c := range found {
		head := first[c.key]
		switch {
		case head == nil || c.id <= head.id || c.isParked && s.cfg.SkipParked:
		case c.isParked || c.attempts > 0 && c.waits || c.attempts >= s.cfg.Attempts:
			delete(first, c.key) // later rows of the key wait
		default:
			later = append(later, &held{row: c.row, lease: lease, until: head.until})
			ids = append(ids, c.id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	result, err := s.cfg.DB.ExecContext(ctx, s.dialect.statement(
		"UPDATE %[1]s SET lease = ?, next_attempt_at = NOW_MS + ? WHERE published = FALSE AND parked = FALSE AND id IN ("+marks(len(ids))+")", s.table),
		append([]any{lease, s.cfg.Lease.Milliseconds()}, ids...)...)
	if err != nil {
		return nil, err
	}
	if n, err := result.RowsAffected(); err != nil || n != int64(len(ids)) {
		return later, errors.Join(err, fmt.Errorf("%d of %d events could be leased", n, len(ids)))
	}
	return later, nil
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

// query returns the result of scan for each row of a query.
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
	return out, rows.Err()
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
