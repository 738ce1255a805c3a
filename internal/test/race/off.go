//go:build !race

// Package race tells tests whether the race detector is on.
package race

// On reports whether the race detector is on.
const On = false
