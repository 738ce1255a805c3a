package sqltx

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxKeys is the maximum number of ordering keys that a claim examines.
const maxKeys = 1000

// first is the first row of an ordering key.
type first struct {
	key string
	due sql.NullInt64 // its id, if it may be claimed
}

// leaseHeads leases due first rows of ordering keys without other leased rows, and reports whether there may be more. It examines
// the keys behind those of the last claim, and reads no rows behind the first one of a key.
func (s *pump) leaseHeads(ctx context.Context, lease string, room int) ([]row, bool, error) {
	due, more, err := s.dueHeads(ctx, room)
	if err != nil || len(due) == 0 {
		return nil, more, err
	}
	keys := make([]string, 0, len(due))
	for _, f := range due {
		keys = append(keys, f.key)
	}
	others, err := s.contested(ctx, lease, keys)
	ids := []any{}
	for _, f := range due {
		if !slices.Contains(others, f.key) {
			ids = append(ids, f.due.Int64)
		}
	}
	if err != nil || len(ids) == 0 {
		return nil, more, err
	}
	rows, err := s.leaseRows(ctx, lease, len(ids), "o.id IN ("+marks(len(ids))+")", ids...)
	return rows, more, err
}

// dueHeads returns at most room due first rows of ordering keys, and reports whether it has to continue.
func (s *pump) dueHeads(ctx context.Context, room int) (due []first, more bool, err error) {
	s.again = s.again && s.after != "" // at the beginning, all keys are still to be examined
	n := min(max(room, s.examine), maxKeys)
	found, err := s.firsts(ctx, n)
	if err != nil {
		return nil, false, err
	}
	end := len(found) < n
	for i, f := range found {
		s.after = f.key
		if f.due.Valid {
			due = append(due, f)
		}
		if len(due) == room {
			end = end && i == len(found)-1
			break
		}
	}
	s.examine = 0
	if len(due) == 0 {
		s.examine = 2 * n
	}
	more = s.again || !end
	if end {
		s.after, s.again = "", false
	}
	return due, more, nil
}

// firsts returns the first rows of at most n ordering keys.
func (s *pump) firsts(ctx context.Context, n int) ([]first, error) {
	unparked := ""
	if s.cfg.SkipParked {
		unparked = " AND o.parked = FALSE"
	}
	scan := func(rows *sql.Rows) (f first, err error) {
		err = rows.Scan(&f.key, &f.due)
		return f, err
	}
	return query(ctx, s.cfg.DB, scan, s.dialect.statement("SELECT k.ordering_key, ("+
		"SELECT CASE WHEN o.parked = FALSE AND o.next_attempt_at <= NOW_MS THEN o.id END FROM %[1]s o"+
		" WHERE o.ordering_key = k.ordering_key AND o.published = FALSE"+unparked+" ORDER BY o.id LIMIT 1)"+
		" FROM ("+s.dialect.OrderingKeys+") k ORDER BY k.ordering_key", s.table), s.after, n)
}

// claimKeys checks the ordering keys of claimed rows and claims more of their rows. If rows of one key commit late, two
// publishers may have claimed some at the same time. Both claims are committed now, so at least the later one sees the other and
// gives way.
func (s *pump) claimKeys(ctx context.Context, lease string, heads []*held, room int) error {
	keys := make([]string, 0, len(heads))
	for _, h := range heads {
		keys = append(keys, h.key)
	}
	others, err := s.contested(ctx, lease, keys)
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
		if l := s.lanes[h.key]; l != nil { // its lease has ended, and advance ignores it from now on
			for _, old := range l.later {
				s.giveBack(old)
			}
		}
		s.lanes[h.key] = &lane{head: h}
		s.ready = append(s.ready, h)
	}
	if mine = mine[:min(len(mine), room)]; len(mine) == 0 {
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

// contested returns the ordering keys that another lease also holds.
func (s *pump) contested(ctx context.Context, lease string, keys []string) ([]string, error) {
	return query(ctx, s.cfg.DB, value[string], s.dialect.statement(
		"SELECT DISTINCT ordering_key FROM %[1]s WHERE published = FALSE AND lease IS NOT NULL AND lease <> ? AND next_attempt_at > NOW_MS AND ordering_key IN ("+marks(len(keys))+")",
		s.table), append([]any{lease}, anys(keys)...)...)
}

// candidate is a row behind a claimed one.
type candidate struct {
	row
	isParked, waits bool
}

// followers leases rows behind claimed ones, in order, about the same number for each key. No other publisher can claim them,
// because the rows before them are not published.
func (s *pump) followers(ctx context.Context, lease string, heads []*held, room int) (later []*held, err error) {
	first := map[string]*held{}
	for _, h := range heads {
		first[h.key] = h
	}
	found, err := s.behind(ctx, heads, (room+len(heads)-1)/len(heads))
	if err != nil {
		return nil, err
	}
	ids := []any{}
	for _, c := range found {
		head := first[c.key]
		switch {
		case len(later) == room || head == nil || c.isParked && s.cfg.SkipParked:
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

// behind returns at most n rows behind each of the claimed ones, by id.
func (s *pump) behind(ctx context.Context, heads []*held, n int) ([]candidate, error) {
	each, args := make([]string, len(heads)), []any{}
	for i, h := range heads {
		each[i] = fmt.Sprintf("SELECT * FROM (SELECT "+columns+", parked, next_attempt_at > NOW_MS AS waits FROM %%[1]s"+
			" WHERE published = FALSE AND ordering_key = ? AND id > ? ORDER BY id LIMIT ?) k%d", i)
		args = append(args, h.key, h.id, n)
	}
	scan := func(rows *sql.Rows) (c candidate, err error) {
		err = c.scan(rows, &c.isParked, &c.waits)
		return c, err
	}
	found, err := query(ctx, s.cfg.DB, scan, s.dialect.statement(strings.Join(each, " UNION ALL "), s.table), args...)
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	return found, err
}
