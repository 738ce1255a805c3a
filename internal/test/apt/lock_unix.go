//go:build unix

package apt

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile waits for an exclusive lock of an existing file, which ends with the process at the latest.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}
