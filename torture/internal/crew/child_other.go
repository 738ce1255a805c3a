//go:build !linux

package crew

import (
	"os"
	"syscall"
)

// On these systems, a stopped process outlives a run that is killed.
func childAttributes() *syscall.SysProcAttr { return nil }

var stopSignal, continueSignal os.Signal
