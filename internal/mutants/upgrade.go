package main

// upgradeMutants change what is in the keys.
var upgradeMutants = []Mutant{
	{
		Name:    "upgrade-another-layout",
		File:    "transactor.go",
		Old:     `const layout = 1`,
		New:     `const layout = 2`,
		Package: "internal/upgrade",
		Test:    "^TestBefore$/^redis$",
		Why:     "a deployed version refuses every shard there is",
	},
	{
		Name:    "upgrade-another-digest",
		File:    "event.go",
		Old:     `	return string(sum[:16])`,
		New:     `	return string(sum[16:])`,
		Package: "internal/upgrade",
		Test:    "^TestBefore$/^redis$",
		Why:     "a deployed version has forgotten every id",
	},
}
