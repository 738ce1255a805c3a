package redistest

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

const scanCount = 1000

// State is what a data set holds, in a form that can be compared: see Diff.
type State struct {
	Keys map[string]Entry
	// Digest is DEBUG DIGEST of all masters together, "" where a pattern was given or the server refuses it. It does
	// not depend on which master has a key.
	Digest string
}

// Entry is one key.
type Entry struct {
	Type string
	// Value is canonical, with quoted texts: members and fields sorted, lists, sorted sets and streams in their order,
	// scores exact. A stream has its ids, groups, consumers and pending entries with their delivery counts as well.
	Value []string
	// ExpireAt is when the key expires in Unix milliseconds; on miniredis, whose keys do not age, the milliseconds
	// left. 0: never.
	ExpireAt int64
}

// Dump reads every key that matches one of the patterns (SCAN … MATCH), or all keys, of the server or of all masters
// of the cluster. It is not a snapshot: nothing should write meanwhile.
func Dump(ctx context.Context, client redis.UniversalClient, patterns ...string) (State, error) {
	client, done := asAdmin(client)
	defer done()
	d := dumper{client: client, state: State{Keys: map[string]Entry{}}}
	if err := d.run(ctx, patterns); err != nil {
		return State{}, fmt.Errorf("redistest: dump: %w", err)
	}
	return d.state, nil
}

type dumper struct {
	client redis.UniversalClient
	state  State

	frozen        bool // miniredis: keys do not age
	noExpireTime  bool // before 7.0: no PEXPIRETIME
	noFieldExpiry bool // before 7.4: fields do not expire
}

func (d *dumper) run(ctx context.Context, patterns []string) error {
	info, err := d.client.Info(ctx).Result()
	if err != nil {
		return err
	}
	d.frozen = !strings.Contains(info, "process_id:")
	keys, err := d.scan(ctx, patterns)
	if err != nil {
		return err
	}
	for key := range keys {
		entry, err := d.entry(ctx, key)
		if err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
		if entry.Type != "none" { // gone since
			d.state.Keys[key] = entry
		}
	}
	if len(patterns) == 0 {
		d.state.Digest, err = d.digest(ctx)
	}
	return err
}

// masters calls f with each master's client, one at a time.
func (d *dumper) masters(ctx context.Context, f func(context.Context, redis.Cmdable) error) error {
	cluster, ok := d.client.(*redis.ClusterClient)
	if !ok {
		return f(ctx, d.client)
	}
	var mu sync.Mutex
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return f(ctx, node)
	})
}

func (d *dumper) scan(ctx context.Context, patterns []string) (map[string]struct{}, error) {
	if len(patterns) == 0 {
		patterns = []string{"*"}
	}
	keys := map[string]struct{}{}
	err := d.masters(ctx, func(ctx context.Context, node redis.Cmdable) error {
		for _, pattern := range patterns {
			iter := node.Scan(ctx, 0, pattern, scanCount).Iterator()
			for iter.Next(ctx) {
				keys[iter.Val()] = struct{}{}
			}
			if err := iter.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	return keys, err
}

func (d *dumper) entry(ctx context.Context, key string) (Entry, error) {
	kind, err := d.client.Type(ctx, key).Result()
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Type: kind}
	if e.Value, err = d.value(ctx, kind, key); err != nil {
		return Entry{}, err
	}
	e.ExpireAt, err = d.expiry(ctx, key)
	return e, err
}

func (d *dumper) value(ctx context.Context, kind, key string) ([]string, error) {
	switch kind {
	case "none":
		return nil, nil
	case "string":
		text, err := d.client.Get(ctx, key).Result()
		return []string{strconv.Quote(text)}, gone(err)
	case "list":
		items, err := d.client.LRange(ctx, key, 0, -1).Result()
		return quoted(items), err
	case "set":
		members, err := d.client.SMembers(ctx, key).Result()
		slices.Sort(members)
		return quoted(members), err
	case "hash":
		return d.hash(ctx, key)
	case "zset":
		return d.zset(ctx, key)
	case "stream":
		return d.stream(ctx, key)
	default: // a module's type
		dump, err := d.client.Dump(ctx, key).Result()
		return []string{hex.EncodeToString([]byte(dump))}, gone(err)
	}
}

func (d *dumper) hash(ctx context.Context, key string) ([]string, error) {
	fields, err := d.client.HGetAll(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(fields))
	expiry, err := d.fieldExpiry(ctx, key, names)
	if err != nil {
		return nil, err
	}
	lines := make([]string, len(names))
	for i, name := range names {
		lines[i] = fmt.Sprintf("%q: %q", name, fields[name])
		if expiry != nil && expiry[i] > 0 {
			lines[i] += fmt.Sprintf(" expires %d", expiry[i])
		}
	}
	return lines, nil
}

// fieldExpiry returns each field's expiry in Unix milliseconds, or nil where fields do not expire.
func (d *dumper) fieldExpiry(ctx context.Context, key string, names []string) ([]int64, error) {
	if d.noFieldExpiry || d.frozen || len(names) == 0 {
		return nil, nil
	}
	expiry, err := d.client.HPExpireTime(ctx, key, names...).Result()
	if unknownCommand(err) {
		d.noFieldExpiry = true
		return nil, nil
	}
	return expiry, err
}

func (d *dumper) zset(ctx context.Context, key string) ([]string, error) {
	members, err := d.client.ZRangeWithScores(ctx, key, 0, -1).Result()
	lines := make([]string, len(members))
	for i, z := range members {
		lines[i] = fmt.Sprintf("%s %q", strconv.FormatFloat(z.Score, 'g', -1, 64), z.Member)
	}
	return lines, err
}

// expireScript serves servers without PEXPIRETIME: one moment for both numbers, as far as the clock shows.
const expireScript = `
local function ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
local before, left, tries = 0, 0, 0
repeat
  before, left, tries = ms(), redis.call('PTTL', KEYS[1]), tries + 1
until before == ms() or tries == 10
return left < 0 and 0 or before + left`

func (d *dumper) expiry(ctx context.Context, key string) (int64, error) {
	if d.frozen {
		left, err := d.client.PTTL(ctx, key).Result()
		return max(left.Milliseconds(), 0), err
	}
	if !d.noExpireTime {
		at, err := d.client.PExpireTime(ctx, key).Result()
		if !unknownCommand(err) {
			return max(at.Milliseconds(), 0), err
		}
		d.noExpireTime = true
	}
	return d.client.Eval(ctx, expireScript, []string{key}).Int64()
}

// digest combines the masters' digests as each combines its keys': by exclusive or.
func (d *dumper) digest(ctx context.Context) (string, error) {
	var sum []byte
	refused := false
	err := d.masters(ctx, func(ctx context.Context, node redis.Cmdable) error {
		text, err := node.(interface {
			Do(ctx context.Context, args ...any) *redis.Cmd
		}).Do(ctx, "DEBUG", "DIGEST").Text()
		if _, isReply := err.(redis.Error); isReply { //nolint:errorlint // a reply's error is not wrapped
			refused = true
			return nil
		}
		if err != nil {
			return err
		}
		part, err := hex.DecodeString(text)
		if err != nil {
			return fmt.Errorf("parse DEBUG DIGEST %q: %w", text, err)
		}
		if sum == nil {
			sum = make([]byte, len(part))
		}
		for i := range min(len(sum), len(part)) {
			sum[i] ^= part[i]
		}
		return nil
	})
	if refused {
		return "", err
	}
	return hex.EncodeToString(sum), err
}

func unknownCommand(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "unknown command")
}

// gone forgives a key that expired between two commands.
func gone(err error) error {
	if err == redis.Nil { //nolint:errorlint // never wrapped
		return nil
	}
	return err
}

func quoted(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = strconv.Quote(text)
	}
	return out
}
