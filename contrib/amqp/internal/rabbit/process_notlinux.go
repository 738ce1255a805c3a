//go:build !linux

package rabbit

import "syscall"

// Elsewhere the kernel does not end children with their parent: a test process that is killed leaves its node.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
