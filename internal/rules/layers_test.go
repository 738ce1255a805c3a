package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// layers are the packages of the project. Each name includes the tree below it, except "." for the root package
// alone. A package may import its own tree and the layers below its own, but neither its own layer nor one above. To
// let one package of a layer import another, split the layer.
var layers = [][]string{
	{"admin/browsertest", "bench", "internal/test/brokertest", "matrix", "sqltx/sqltest", "test", "torture"},
	{"admin/internal/admintest", "cmd", "examples", "luatxtest", "internal/mutants", "internal/release", "internal/rules", "internal/test/upgrade"},
	{"internal/test/rig"},
	{"internal/test/redistest", "internal/test/scripted"},
	{"contrib", "internal/test/measure"},
	{"service"},
	{"admin/console", "admin/httpapi"},
	{"admin/internal/desk"},
	{"admin/internal/guard"},
	{"admin", "idempotency", "internal/acts", "internal/rekey", "stack", "sqltx", "trigger"},
	{"pipeline", "relay", "repair"},
	{"outbox", "inbox", "stream", "expiry"},
	{"."},
	{"internal/link"},
	{"internal/commit", "internal/history"},
	{"internal/process", "internal/shard"},
	{"internal/eval", "internal/record"},
	{"internal/command", "internal/group", "internal/identity", "internal/inbound", "internal/outboxentry", "internal/producer", "internal/settle", "internal/streamentry"},
	{"internal/docs", "internal/flight", "internal/lua", "internal/mark", "internal/msgpack", "internal/observe", "internal/piped", "internal/pretty", "internal/sbom", "internal/sleep", "internal/slot", "internal/test/apt", "internal/test/child", "internal/test/documented", "internal/test/race", "internal/test/respproxy", "message"},
	{"internal/test/assert"},
}

// only further restricts the layers below that a package may import.
var only = map[string][]string{
	"idempotency": {"."},
	"sqltx":       {"internal/settle", "internal/sleep", "message"},
	"trigger":     {"message", "internal/group", "internal/observe", "internal/process", "internal/sleep", "internal/slot"},
}

// place returns the entry of layers that contains a package, and its layer. The package is relative to the module.
func place(pkg string) (name string, layer int, ok bool) {
	for i, names := range layers {
		for _, name := range names {
			if inTree(pkg, name) {
				return name, i, true
			}
		}
	}
	return "", 0, false
}

// relative removes the module from an import path. The root package becomes ".". It returns false for packages
// outside of the module.
func relative(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func layerProblems(packages []listed) []string {
	var problems []string
	for _, p := range packages {
		pkg, own := relative(p.ImportPath)
		from, layer, known := place(pkg)
		if !own || !known {
			problems = append(problems, fmt.Sprintf("%s is in no layer: put it into the table of layers", p.ImportPath))
			continue
		}
		for _, imported := range p.Imports {
			target, own := relative(imported)
			if !own {
				continue
			}
			to, below, known := place(target)
			switch {
			case !known:
				problems = append(problems, fmt.Sprintf("%s imports %s, which is in no layer", pkg, target))
			case to == from:
			case below <= layer:
				problems = append(problems, fmt.Sprintf("%s imports %s, which is not below it", pkg, target))
			case only[from] != nil && !slices.Contains(only[from], target):
				problems = append(problems, fmt.Sprintf("%s imports %s, but may import %q alone", pkg, target, only[from]))
			}
		}
	}
	return problems
}

func TestLayerProblemsAreFound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, pkg, imports, want string
	}{
		{"one down", "relay", "/outbox", ""},
		{"far down", "cmd/luatx", "/message", ""},
		{"own tree, up", "message/middleware", "/message", ""},
		{"own tree, down", "cmd/luatx", "/cmd/luatx/internal/shop", ""},
		{"to the root", "outbox", "", ""},
		{"others", "message", "!fmt", ""},
		{"up", "outbox", "/relay", "outbox imports relay, which is not below"},
		{"up to the root", "internal/command", "", "internal/command imports ., which is not below"},
		{"a helper upward", "internal/slot", "/internal/shard", "not below"},
		{"beside", "inbox", "/outbox", "inbox imports outbox, which is not below"},
		{"test tools in the product", "stream", "/internal/test/redistest", "not below"},
		{"unknown", "surprise", "/message", "surprise is in no layer"},
		{"not a tree of a known one", "messages", "/message", "messages is in no layer"},
		{"imports unknown", "relay", "/surprise", "surprise, which is in no layer"},
		{"narrowed, allowed", "sqltx", "/message", ""},
		{"narrowed, root", "sqltx", "", "sqltx imports ., but may import"},
		{"narrowed, below the allowed one", "trigger/driver", "/message/middleware", "but may import"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			imported, foreign := strings.CutPrefix(test.imports, "!")
			if !foreign {
				imported = module + test.imports
			}
			wantProblem(t, layerProblems([]listed{{ImportPath: module + "/" + test.pkg, Imports: []string{imported}}}), test.want)
		})
	}
}

func TestPackagesRespectTheLayers(t *testing.T) {
	t.Parallel()
	report(t, layerProblems(everyPackage(t)))
}
