package upgrade

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/assert"
)

// A fixture is a data set as commands, one a line, each argument quoted as in Go: it can be read, and loaded into every
// server.
const fixture = "testdata/before.txt"

func writeFixture(ctx context.Context, client *redis.Client) error {
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil {
		return err
	}
	slices.Sort(keys)
	var text strings.Builder
	for _, key := range keys {
		args, err := command(ctx, client, key)
		if err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
		writeCommand(&text, args)
		expires, err := client.PExpireTime(ctx, key).Result()
		if err != nil {
			return err
		}
		if expires > 0 {
			writeCommand(&text, []string{"PEXPIREAT", key, strconv.FormatInt(expires.Milliseconds(), 10)})
		}
	}
	return os.WriteFile(fixture, []byte(text.String()), 0o644)
}

// command is what makes a key.
func command(ctx context.Context, client *redis.Client, key string) ([]string, error) {
	kind, err := client.Type(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	switch kind {
	case "string":
		value, err := client.Get(ctx, key).Result()
		return []string{"SET", key, value}, err
	case "list":
		items, err := client.LRange(ctx, key, 0, -1).Result()
		return append([]string{"RPUSH", key}, items...), err
	case "set":
		members, err := client.SMembers(ctx, key).Result()
		slices.Sort(members)
		return append([]string{"SADD", key}, members...), err
	case "hash":
		fields, err := client.HGetAll(ctx, key).Result()
		args := []string{"HSET", key}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			args = append(args, name, fields[name])
		}
		return args, err
	case "zset":
		members, err := client.ZRangeWithScores(ctx, key, 0, -1).Result()
		args := []string{"ZADD", key}
		for _, z := range members {
			args = append(args, strconv.FormatFloat(z.Score, 'f', -1, 64), z.Member.(string))
		}
		return args, err
	default:
		return nil, fmt.Errorf("cannot write a key of type %s", kind)
	}
}

func writeCommand(text *strings.Builder, args []string) {
	for i, arg := range args {
		if i > 0 {
			text.WriteByte(' ')
		}
		text.WriteString(strconv.QuoteToASCII(arg))
	}
	text.WriteByte('\n')
}

// load loads the fixture, after change has seen its text.
func load(t *testing.T, client redis.UniversalClient, change func(string) string) {
	t.Helper()
	text, err := os.ReadFile(fixture)
	assert.Must(t, err)
	for line := range strings.Lines(change(string(text))) {
		var args []any
		for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				t.Fatalf("%s: %q: %v", fixture, rest, err)
			}
			arg, err := strconv.Unquote(quoted)
			assert.Must(t, err)
			args, rest = append(args, arg), rest[len(quoted):]
		}
		assert.Must(t, client.Do(t.Context(), args...).Err())
	}
}
