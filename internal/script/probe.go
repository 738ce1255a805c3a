package script

import "context"

// What the probe says of the server and the user: which keys can be restored whole.
const (
	restoresStrings = "1"
	restoresAll     = "2"
)

// Probe asks a server what the undo may do there, and keeps the answer for every commit after it. It returns the
// commands that the undo lacks, without which nothing should be committed, and whether it can restore every key.
func (s *Set) Probe(ctx context.Context, shard Shard) (lacks []string, restores bool, err error) {
	reply, err := s.eval(ctx, &s.probe, shard.keys(keyVoid, keyInboxA), nil)
	if err != nil {
		return nil, false, err
	}
	rows, _ := reply.([]any)
	if len(rows) == 0 || rows[0] != restoresStrings && rows[0] != restoresAll {
		return nil, false, malformed("probe", reply)
	}
	for _, row := range rows[1:] {
		name, ok := row.(string)
		if !ok {
			return nil, false, malformed("probe", reply)
		}
		lacks = append(lacks, name)
	}
	restores = rows[0] == restoresAll
	s.stringsOnly.Store(!restores)
	return lacks, restores, nil
}
