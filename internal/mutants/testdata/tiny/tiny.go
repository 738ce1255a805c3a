// Package tiny is the code that the test of the mutants command breaks.
package tiny

// Max returns the greater number. It is not inlined, so that an edit of it changes nothing in the tests.
//
//go:noinline
func Max(a, b int) int {
	if a > b {
		return a
	}
	return b
}
