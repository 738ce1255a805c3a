// Package rules holds the tests of the project's own rules: which package may import which, what the core links,
// how scripts begin, how long files are, and what must not be written in them. The rules that a linter knows are in .golangci.yml.
//
// Each rule is a function from what it looks at to the problems it finds, tried on broken input first and then on the
// tree.
package rules
