package script

import (
	"context"
	"errors"
)

// Read is the answer to one guarded read.
type Read struct {
	Reply  any // an error where the server's was one
	Digest string
}

// Read runs reads on the master, all at one moment, and digests their replies. Keys are those that are read.
func (s *Set) Read(ctx context.Context, shard Shard, keys []string, reads []Guard) ([]Read, error) {
	var args []any
	for _, read := range reads {
		args = append(args, read.head())
		args = append(args, read.Args...)
	}
	reply, err := s.eval(ctx, &s.read, append(shard.keys(keyVoid), keys...), args)
	if err != nil {
		return nil, err
	}
	rows, _ := reply.([]any)
	if len(rows) != len(reads) {
		return nil, malformed("read", reply)
	}
	out := make([]Read, len(rows))
	for i := range rows {
		row, _ := rows[i].([]any)
		if len(row) != 3 {
			return nil, malformed("read", reply)
		}
		out[i].Reply = row[1]
		out[i].Digest, _ = row[2].(string)
		if row[0] == int64(0) {
			text, _ := row[1].(string)
			out[i].Reply = errors.New(text)
		}
	}
	return out, nil
}
