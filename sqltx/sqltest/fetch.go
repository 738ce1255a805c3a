package sqltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	fetchTimeout = 5 * time.Minute
	envSetup     = "SETUP" // 1: install what is missing
	envCI        = "CI"    // set: what is missing fails instead of skipping
)

// fetch installs a package once for all test processes, and stops the service that it may have started: tests start
// servers of their own. They wait for each other on a file lock, and one failure spares the others theirs.
func fetch(name, service string, there func() bool) error {
	if !mayFetch() {
		return errors.New("not installed by itself: needs root on Debian, or SETUP=1")
	}
	base := filepath.Join(os.TempDir(), fmt.Sprintf("luatx-sqltest-%d-%s", os.Getuid(), name))
	unlock, err := lockFile(filepath.Join(os.TempDir(), fmt.Sprintf("luatx-sqltest-%d.lock", os.Getuid())))
	if err != nil {
		return err
	}
	defer unlock()
	if there() {
		return nil
	}
	failed := base + ".failed"
	if info, err := os.Stat(failed); err == nil && time.Since(info.ModTime()) < 2*fetchTimeout {
		return fmt.Errorf("an installation failed just now, see %s", failed)
	}
	if err := aptInstall(name, service); err != nil {
		return errors.Join(err, os.WriteFile(failed, []byte(err.Error()), 0o600))
	}
	return nil
}

func mayFetch() bool {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return false
	}
	if os.Getenv(envSetup) == "1" {
		return true
	}
	_, err := os.Stat("/etc/debian_version")
	return err == nil && os.Getuid() == 0
}

func aptInstall(name, service string) error {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	if err := privileged(ctx, "apt-get", "update", "-qq"); err != nil {
		return err
	}
	if err := privileged(ctx, "apt-get", "install", "-y", "-qq", "--no-install-recommends", name); err != nil {
		return err
	}
	if err := privileged(ctx, "service", service, "stop"); err != nil { // without an init system there is none
		fmt.Fprintln(os.Stderr, "sqltest: the installed service was not stopped:", err)
	}
	return nil
}

func privileged(ctx context.Context, name string, args ...string) error {
	if os.Getuid() != 0 {
		name, args = "sudo", append([]string{"-n", "DEBIAN_FRONTEND=noninteractive", name}, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, lastLines(out, 5))
	}
	return nil
}

// lockFile waits for an exclusive lock that ends with the process at the latest.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}
