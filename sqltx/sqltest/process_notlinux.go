//go:build !linux

package sqltest

import "syscall"

// Elsewhere the kernel does not end children with their parent: a test process that is killed leaves its servers.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
