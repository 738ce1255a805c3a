package command

import "testing"

// BenchmarkLookup is what recording and laying out a command cost here.
func BenchmarkLookup(b *testing.B) {
	args := words("hset {tag}:key field value")
	b.ReportAllocs()
	for b.Loop() {
		s, err := Lookup(args)
		if err != nil || s.Check(args) != nil {
			b.Fatal(err)
		}
		if _, err := s.Keys(args); err != nil {
			b.Fatal(err)
		}
		_ = s.Head(args)
	}
}
