//go:build !linux

package child

import "syscall"

// Elsewhere the kernel does not end children with their parent: a test process that is killed leaves its servers.
func endWithParent(*syscall.SysProcAttr) {}
