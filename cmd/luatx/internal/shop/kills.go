package shop

import "math/rand/v2"

// Kill is a planned kill of a worker after a number of applied messages.
type Kill struct{ After, Worker int }

// Kills plans a kill after every so many messages, except after the last, with victims chosen by the seed. Both modes get
// the same plan, so that they are hit at the same shares of their progress. It returns none if every or workers is below
// one.
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
