package rig

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
)

// Knows reports whether the server has a command.
func Knows(t testing.TB, client redis.UniversalClient, name string) bool {
	t.Helper()
	found, err := client.Do(t.Context(), "COMMAND", "INFO", name).Slice()
	redistest.Must(t, err)
	return len(found) == 1 && found[0] != nil
}

// Anys converts words to arguments of a command.
func Anys(words []string) []any {
	all := make([]any, len(words))
	for i, word := range words {
		all[i] = word
	}
	return all
}

// Transact commits the commands of lines, which semicolons separate, and returns them as recorded. Words says what K means.
func Transact(t testing.TB, tr *luatx.Transactor, k, lines string) ([]redis.Cmder, error) {
	t.Helper()
	ctx := redistest.Soon(t)
	var cmds []redis.Cmder
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		for line := range strings.SplitSeq(lines, ";") {
			cmds = append(cmds, tx.Pipeline().Do(ctx, Words(line, k)...))
		}
		return nil
	}, luatx.WithID(redistest.Tag(t)))
	return cmds, err
}

// Run sends the commands of lines outside of any transaction.
func Run(t testing.TB, client redis.UniversalClient, k, lines string) {
	t.Helper()
	for line := range strings.SplitSeq(lines, ";") {
		if line == "" {
			continue
		}
		if err := client.Do(t.Context(), Words(line, k)...).Err(); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

// Words splits a command. It replaces K by the key k and K:1 by a key beside it.
func Words(line, k string) []any {
	var args []any
	for word := range strings.FieldsSeq(line) {
		if rest, ok := strings.CutPrefix(word, "K"); ok && (rest == "" || rest[0] == ':') {
			word = k + rest
		}
		args = append(args, word)
	}
	return args
}
