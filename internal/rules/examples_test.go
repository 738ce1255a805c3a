package rules

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// exampled lists the main names of public packages. Each name needs an Example, of its own or of one of its methods.
// A package that is not listed needs at least one Example.
var exampled = map[string][]string{
	".":                  {"Transactor", "Tx", "Procedure", "Keyspace", "CommandError", "KeepReplies", "Observer"},
	"admin":              {"Operator"},
	"admin/console":      {"New"},
	"admin/httpapi":      {"New"},
	"contrib/amqp":       {"Publisher", "Subscriber"},
	"contrib/kafka":      {"Publisher", "Subscriber"},
	"contrib/nats":       {"Publisher", "Subscriber"},
	"contrib/pgx":        {"ExecutorFromContext"},
	"contrib/prometheus": {"Metrics"},
	"contrib/watermill":  {"Middleware", "Relay", "Subscriber"},
	"expiry":             {"Worker"},
	"inbox":              {"Middleware"},
	"luatxtest":          {"Env"},
	"message":            {"Router", "Engine", "NewHandler", "TypedMessage", "RetryAfter"},
	"outbox":             {"Store", "Middleware"},
	"relay":              {"Relay", "HTTP", "Route", "Channel"},
	"repair":             {"Worker"},
	"service":            {},
	"sqltx":              {"Transact", "Dialect"},
	"stream":             {"Publisher", "Subscriber", "PartitionedSubscriber", "DeadLetters"},
	"trigger":            {"Runtime", "Config"},
	"relay/cehttp":       {"Read"},
}

// notPublic are the trees that users do not import.
var notPublic = []string{
	"admin/browsertest", "admin/internal", "bench", "cmd", "contrib/amqp/internal", "contrib/prometheus/promqltest", "examples", "internal", "matrix", "sqltx/sqltest/found", "test",
	"torture",
}

var exampleFunc = regexp.MustCompile(`(?m)^func Example(\w*)\(\) \{`)

// exampleProblems compares the names of a package's Examples, such as ExampleName_Method, with the wanted names.
func exampleProblems(pkg string, examples, wanted []string) []string {
	if len(examples) == 0 {
		return []string{fmt.Sprintf("%s has no Example: show what it is for", pkg)}
	}
	var problems []string
	for _, name := range wanted {
		if !slices.ContainsFunc(examples, func(example string) bool { return example == name || strings.HasPrefix(example, name+"_") }) {
			problems = append(problems, fmt.Sprintf("%s has no Example of %s", pkg, name))
		}
	}
	return problems
}

func TestExampleProblemsAreFound(t *testing.T) {
	t.Parallel()
	wantProblem(t, exampleProblems("a", nil, nil), "a has no Example: show")
	wantProblem(t, exampleProblems("a", []string{""}, nil), "")
	wantProblem(t, exampleProblems("a", []string{"", "Tx_Read", "Event"}, []string{"Tx", "Event"}), "")
	wantProblem(t, exampleProblems("a", []string{"TxRead"}, []string{"Tx"}), "a has no Example of Tx")
}

func TestPackagesHaveExamples(t *testing.T) {
	t.Parallel()
	seen, files := map[string]bool{}, trackedFiles(t, "_test.go")
	for _, p := range everyPackage(t) {
		pkg, own := relative(p.ImportPath)
		if !own || slices.ContainsFunc(notPublic, func(tree string) bool { return inTree(pkg, tree) }) {
			continue
		}
		seen[pkg] = true
		var examples []string
		for _, file := range files {
			if path.Dir(file) == pkg {
				for _, match := range exampleFunc.FindAllStringSubmatch(read(t, file), -1) {
					examples = append(examples, match[1])
				}
			}
		}
		report(t, exampleProblems(pkg, examples, exampled[pkg]))
	}
	for pkg := range exampled {
		if !seen[pkg] {
			t.Errorf("there is no package %s any more: take it out of the list", pkg)
		}
	}
}
