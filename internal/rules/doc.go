// Package rules holds the tests of the project's own rules: which package may import which, what the core links, how scripts
// begin, how long files are, and what they must not contain. The rules that a linter can check are in .golangci.yml.
//
// Each rule is a function that returns the problems of its input. Its tests run it on broken input first and then on the
// tree.
package rules
