package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const fetchTimeout = 5 * time.Minute

// fetch installs redis-server once for all test processes: they wait for each other on a file lock, and one failure
// spares the others theirs.
func fetch() error {
	if !mayFetch() {
		return errors.New("not installed by itself: needs root on Debian, or SETUP=1")
	}
	base := filepath.Join(os.TempDir(), fmt.Sprintf("luatx-redistest-%d", os.Getuid()))
	unlock, err := lockFile(base + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if lookPath() != "" {
		return nil
	}
	failed := base + ".failed"
	if info, err := os.Stat(failed); err == nil && time.Since(info.ModTime()) < 2*fetchTimeout {
		return fmt.Errorf("an installation failed just now, see %s", failed)
	}
	if err := aptInstall(); err != nil {
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

func aptInstall() error {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	if err := privileged(ctx, "apt-get", "update", "-qq"); err != nil {
		return err
	}
	if err := privileged(ctx, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "redis-server"); err != nil {
		return err
	}
	// The package may have started a service; tests start servers of their own. Without an init system there is
	// neither the service nor a way to stop it.
	if err := privileged(ctx, "service", "redis-server", "stop"); err != nil {
		fmt.Fprintln(os.Stderr, "redistest: the installed service was not stopped:", err)
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
