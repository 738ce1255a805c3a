//go:build unix

package redistest

import (
	"syscall"

	"github.com/luatx/luatx/internal/test/child"
)

func pause(p *child.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *child.Process) error { return p.Signal(syscall.SIGCONT) }
