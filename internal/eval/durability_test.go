package eval

import "testing"

// A server older than 7.2 has no WAITAOF, so the replies are given here.
func TestReachedNeedsEveryCopyThatWasAskedFor(t *testing.T) {
	t.Parallel()
	aof := func(local, replicas int64) []any { return []any{local, replicas} }
	for _, c := range []struct {
		name  string
		d     Durability
		reply any
		want  bool
	}{
		{"enough replicas", Durability{Replicas: 2}, int64(2), true},
		{"more replicas", Durability{Replicas: 2}, int64(3), true},
		{"too few replicas", Durability{Replicas: 2}, int64(1), false},
		{"no reply", Durability{Replicas: 1}, nil, false},
		{"on the master's disk", Durability{Fsync: true}, aof(1, 0), true},
		{"not on the master's disk", Durability{Fsync: true}, aof(0, 0), false},
		{"on the disks of all", Durability{Fsync: true, Replicas: 1}, aof(1, 1), true},
		{"on the disks of replicas only", Durability{Fsync: true, Replicas: 1}, aof(0, 2), false},
		{"on the disks of too few replicas", Durability{Fsync: true, Replicas: 2}, aof(1, 1), false},
		{"no reply about disks", Durability{Fsync: true}, nil, false},
		{"half a reply about disks", Durability{Fsync: true}, []any{int64(1)}, false},
	} {
		if got := c.d.reached(c.reply); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
