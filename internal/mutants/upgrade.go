package main

// upgradeMutants change what is in the keys.
var upgradeMutants = []Mutant{
	{
		Name:    "upgrade-another-layout",
		File:    "transactor.go",
		Old:     `const layout = 2`,
		New:     `const layout = 3`,
		Package: ".",
		Test:    "^TestIdentityIsFrozen$",
		Why:     "a deployed version refuses every shard there is",
	},
	{
		Name:    "upgrade-another-digest",
		File:    "internal/identity/identity.go",
		Old:     `	return string(sum[:16])`,
		New:     `	return string(sum[16:])`,
		Package: "internal/identity",
		Test:    "^TestDigestIsFrozen$",
		Why:     "a deployed version has forgotten every id",
	},
}
