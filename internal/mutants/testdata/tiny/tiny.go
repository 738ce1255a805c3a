// Package tiny is the code that the test of the mutants command breaks.
package tiny

// Max returns the greater number.
func Max(a, b int) int {
	if a > b {
		return a
	}
	return b
}
