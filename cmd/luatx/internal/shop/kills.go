package shop

import "math/rand/v2"

// Kill says which worker dies, and once how many messages have been applied.
type Kill struct{ After, Worker int }

// Kills plans a kill every so many messages, short of the last one, with victims drawn from the seed. Both modes get the same
// plan, so that each is hit at the same shares of its progress. None where every or workers is below one.
func Kills(seed uint64, messages, every, workers int) []Kill {
	if every < 1 || workers < 1 {
		return nil
	}
	r := rand.New(rand.NewPCG(seed, 0x6b696c6c))
	var kills []Kill
	for after := every; after < messages; after += every {
		kills = append(kills, Kill{After: after, Worker: r.IntN(workers)})
	}
	return kills
}
