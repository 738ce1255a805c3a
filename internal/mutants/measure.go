package main

// measureMutants break what ways are compared by.
var measureMutants = []Mutant{
	{
		Name:    "ratios-across-rounds",
		File:    "internal/measure/table.go",
		Old:     `return ratio(metric(round[w]), metric(round[b]))`,
		New:     `return ratio(metric(round[w]), metric(t.Rounds[0][b]))`,
		Package: "internal/measure",
		Test:    "^TestRatioIsOfRounds$",
		Why:     "a machine that is slow for a while would make one way look slow",
	},
	{
		Name:    "the-same-order-in-every-round",
		File:    "internal/measure/interleave.go",
		Old:     `rand.NewPCG(1, uint64(round))`,
		New:     `rand.NewPCG(1, uint64(round-round))`,
		Package: "internal/measure",
		Test:    "^TestInterleave$",
		Why:     "each way would always suffer from what the same other one leaves",
	},
	{
		Name:    "a-quick-warm-up-decides",
		File:    "internal/measure/interleave.go",
		Old:     `if cell.Ops == 0 {`,
		New:     `if cell.Ops < 0 {`,
		Package: "internal/measure",
		Test:    "^TestRoundsKeepTheirLength$",
		Why:     "a way that was held up once would be measured over next to nothing",
	},
	{
		Name:    "handwritten-script-acknowledges-nothing",
		File:    "internal/measure/ways/byhand.go",
		Old:     `return redis.call('XACK', KEYS[5], ARGV[3], ARGV[4])`,
		New:     `return 1`,
		Package: "internal/measure/ways",
		Test:    "^TestEachWayDoesTheWork$",
		Why:     "the floor would be lower than the work is",
	},
}
