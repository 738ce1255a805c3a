package commit

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
)

// Resolve returns what became of a digest, or of a token where it is not empty, and the server's time. With a tombstone it makes sure
// that no copy of the token's commit takes effect up to that server time.
func (s *Sender) Resolve(ctx context.Context, home shard.Shard, digest, token string, tombstone time.Time) (state State, text string, now time.Time, err error) {
	until := ""
	if !tombstone.IsZero() {
		until = eval.Millis(tombstone)
	}
	reply, err := s.runner.Eval(ctx, s.resolve, home.ResolveKeys(), []any{digest, token, until})
	if err != nil {
		return "", "", time.Time{}, err
	}
	now, rest, err := eval.Timed(reply)
	if err != nil {
		return "", "", time.Time{}, err
	}
	word, _ := rest[0].(string)
	if len(rest) > 1 {
		text, _ = rest[1].(string)
	}
	return State(word), text, now, nil
}
