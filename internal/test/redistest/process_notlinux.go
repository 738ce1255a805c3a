//go:build !linux

package redistest

import "syscall"

// Elsewhere the kernel does not end children with their parent: a test process that is killed leaves its servers.
func childAttributes() *syscall.SysProcAttr { return nil }
