package commit

import (
	"context"
	"errors"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
)

// Read is the result of one guarded read.
type Read struct {
	Reply  any // an error if the server returned one
	Digest string
	Size   int // the size of the reply, as counted in internal/lua/_guard.lua
}

// Read runs reads on the master atomically, and returns their replies with digests. Keys contains the keys of the
// reads. If the size of the replies exceeds room, Read returns only those that fit.
func (s *Sender) Read(ctx context.Context, home shard.Shard, keys []string, reads []Guard, room int) ([]Read, error) {
	args := []any{room}
	for _, read := range reads {
		args = append(args, read.head())
		args = append(args, read.Args...)
	}
	reply, err := s.runner.Eval(ctx, s.read, append([]string{home.Void}, keys...), args)
	if err != nil {
		return nil, err
	}
	rows, _ := reply.([]any)
	out := make([]Read, 0, len(reads))
	for _, row := range rows {
		fields, _ := row.([]any)
		if len(fields) == 1 && fields[0] == int64(tooLarge) && len(out) < len(reads) {
			return out, nil
		}
		if len(fields) != 4 {
			return nil, eval.Malformed("read", reply)
		}
		read := Read{Reply: fields[1], Size: eval.Number(fields[3])}
		read.Digest, _ = fields[2].(string)
		if fields[0] == int64(0) {
			text, _ := fields[1].(string)
			read.Reply = errors.New(text)
		}
		out = append(out, read)
	}
	if len(out) != len(reads) {
		return nil, eval.Malformed("read", reply)
	}
	return out, nil
}

// tooLarge is the number that internal/lua/read.lua returns for a read that exceeds the room.
const tooLarge = 2
