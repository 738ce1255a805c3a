//go:build !linux

package crew

import (
	"os"
	"syscall"
)

// Elsewhere a process that was stopped outlives a run that is killed.
func childAttributes() *syscall.SysProcAttr { return nil }

var stopSignal, continueSignal os.Signal
