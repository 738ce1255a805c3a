package rules

import (
	"fmt"
	"slices"
	"testing"
)

const goRedis = "github.com/redis/go-redis/v9"

// tools are the trees of the core that users' programs do not link. Their tests may link them.
var tools = []string{"admin/internal/admintest", "cmd", "examples", "luatxtest", "internal/mutants", "internal/release", "internal/test/brokertest", "internal/test/redistest", "internal/test/rig", "internal/test/scripted", "internal/rules"}

// linkProblems reports linked packages that belong neither to the standard library, nor to the project, nor to the
// allowed modules.
func linkProblems(linked []listed, allowed []string) []string {
	var problems []string
	for _, p := range linked {
		if _, own := relative(p.ImportPath); own || p.Standard {
			continue
		}
		if p.Module == nil || !slices.Contains(allowed, p.Module.Path) {
			problems = append(problems, fmt.Sprintf("%s is linked; what needs it belongs into a module of its own", p.ImportPath))
		}
	}
	return problems
}

// modulesOf returns the modules of the packages.
func modulesOf(packages []listed) []string {
	var modules []string
	for _, p := range packages {
		if p.Module != nil && !slices.Contains(modules, p.Module.Path) {
			modules = append(modules, p.Module.Path)
		}
	}
	return modules
}

func TestLinkProblemsAreFound(t *testing.T) {
	t.Parallel()
	in := func(path string) *struct{ Path string } { return &struct{ Path string }{path} }
	linked := []listed{
		{ImportPath: "fmt", Standard: true},
		{ImportPath: module + "/message", Module: in(module)},
		{ImportPath: goRedis + "/push", Module: in(goRedis)},
	}
	wantProblem(t, linkProblems(linked, []string{goRedis}), "")
	wantProblem(t, linkProblems(linked, nil), goRedis+"/push is linked")
	wantProblem(t, linkProblems([]listed{{ImportPath: "example.com/missing"}}, []string{goRedis}), "example.com/missing is linked")
}

// linkedBy returns all packages that the chosen packages of the core link, including themselves.
func linkedBy(t *testing.T, chosen func(pkg string) bool) []listed {
	t.Helper()
	args := []string{"-deps", "--"}
	for _, p := range goList(t, root, "./...") {
		if pkg, own := relative(p.ImportPath); own && chosen(pkg) {
			args = append(args, p.ImportPath)
		}
	}
	if len(args) == 2 {
		t.Fatal("no package was chosen: the rule would hold nothing")
	}
	return goList(t, root, args...)
}

func TestMessageLinksOnlyTheStandardLibrary(t *testing.T) {
	t.Parallel()
	isMessage := func(pkg string) bool { return inTree(pkg, "message") }
	linked := linkedBy(t, isMessage)
	report(t, linkProblems(linked, nil))
	for _, p := range linked {
		if pkg, own := relative(p.ImportPath); own && !isMessage(pkg) {
			t.Errorf("message links %s of the project", pkg)
		}
	}
}

func TestCoreLinksOnlyGoRedis(t *testing.T) {
	t.Parallel()
	allowed := modulesOf(goList(t, root, "-deps", goRedis))
	if !slices.Contains(allowed, goRedis) {
		t.Fatalf("go list does not find %s: %q", goRedis, allowed)
	}
	report(t, linkProblems(linkedBy(t, func(pkg string) bool {
		return !slices.ContainsFunc(tools, func(tool string) bool { return inTree(pkg, tool) })
	}), allowed))
}
