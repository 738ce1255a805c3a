package crew

import (
	"os"
	"syscall"
)

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

var stopSignal, continueSignal os.Signal = syscall.SIGSTOP, syscall.SIGCONT
