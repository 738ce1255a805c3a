package main

import "slices"

// Mutant is one edit that the named test must notice.
type Mutant struct {
	Name    string // what breaks, as a short sentence with dashes
	File    string // from the root of the repository
	Old     string // text of the file, of any number of lines; must occur exactly once
	New     string // what stands there instead; must compile
	Package string // directory of the test's package, from the root
	Test    string // regexp of go test -run
	Why     string // what users would see
}

// table lists every mutant. An area has a slice of its own, in a file of its own where it is long.
func table() []Mutant {
	return slices.Concat(
		toolMutants,
		engineMutants,
		scriptMutants,
		planMutants,
		pipelineMutants,
		faultMutants,
		readMutants,
		commandMutants,
		swapMutants,
		queueMutants,
		undoMutants,
		streamMutants,
		expiryMutants,
		repairMutants,
		outboxMutants,
		partitionMutants,
		findMutants,
		operateMutants,
		sqlMutants,
		publisherMutants,
		measureMutants,
		tortureMutants,
		triggerMutants,
		adminMutants,
		pauseMutants,
		luatxtestMutants,
		consoleMutants,
		idempotencyMutants,
		exampleMutants,
		handlerMutants,
		observeMutants,
		telemetryMutants,
		brokerMutants,
		amqpMutants,
		cloudeventsMutants,
		upgradeMutants,
		watermillMutants,
	)
}

// toolMutants break what other tests rely on.
var toolMutants = []Mutant{
	{
		Name: "proxy-forwards-what-it-drops",
		File: "internal/respproxy/session.go",
		Old: `			lost = true
			s.silence()
			continue
`,
		New: `			lost = true
			s.silence()
`,
		Package: "internal/respproxy",
		Test:    "^TestActions$/^DropRequest$",
		Why:     "tests of a request that never arrives would test one that does",
	},
	{
		Name:    "proxy-does-not-hold",
		File:    "internal/respproxy/session.go",
		Old:     `case <-action.hold.released:`,
		New:     `default:`,
		Package: "internal/respproxy",
		Test:    "^TestHeldRequestArrivesAfterTheClientGaveUp$",
		Why:     "tests of a late copy would test one in time",
	},
	{
		Name:    "dump-overlooks-deliveries",
		File:    "internal/redistest/dumpstream.go",
		Old:     `p.Consumer, p.RetryCount)`,
		New:     `p.Consumer, 0)`,
		Package: "internal/redistest",
		Test:    "^TestDumpOfMiniredis$",
		Why:     "a replay that counts a delivery would look like none",
	},
	{
		Name:    "links-of-pages-are-overlooked",
		File:    "internal/docs/markdown.go",
		Old:     `page.Links = append(page.Links, Link{Line: line, Target: plain[at[2]:at[3]]})`,
		New:     `_ = line`,
		Package: "internal/rules",
		Test:    "^TestMarkdownProblems$",
		Why:     "a link of the documentation may lead nowhere",
	},
	{
		Name:    "errors-in-blocks-are-overlooked",
		File:    "internal/docs/program.go",
		Old:     `add(assign.End(), "; must_(err)")`,
		New:     `add(assign.End(), "; _ = err")`,
		Package: "internal/docs",
		Test:    "^TestBrokenBlocks$",
		Why:     "an example of the documentation may fail, and nobody hears of it",
	},
}
