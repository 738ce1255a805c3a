// Package apt installs packages of Debian for tests, where that is allowed.
package apt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	installTimeout = 5 * time.Minute
	failureCounts  = 10 * time.Minute // for as long nobody tries again
)

// Why nothing was installed.
var (
	ErrNotAllowed = errors.New("not installed by itself: needs root on Debian, or SETUP=1")
	ErrNoApt      = errors.New("not installed by itself: there is no apt-get")
)

// Install installs a package, unless what it brings is there. It does so once for all test processes: they wait for each
// other, and a failure of one spares the others theirs. No service of the package is started: tests start servers of
// their own.
func Install(pkg string, there func() bool) error {
	return system{uid: os.Getuid(), policy: "/usr/sbin/policy-rc.d", timeout: installTimeout}.install(pkg, there)
}

// system is where packages go.
type system struct {
	uid     int
	policy  string // the program that says whether an installed service is started
	timeout time.Duration
}

func (s system) install(pkg string, there func() bool) error {
	if err := s.allowed(); err != nil {
		return err
	}
	base := filepath.Join(os.TempDir(), "luatx-apt-"+strconv.Itoa(s.uid))
	unlock, err := lockFile(base + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if there() {
		return nil
	}
	failed := base + "-" + pkg + ".failed"
	if info, err := os.Stat(failed); err == nil && time.Since(info.ModTime()) < failureCounts {
		return fmt.Errorf("an installation failed just now, see %s", failed)
	}
	if err := s.run(pkg); err != nil {
		return errors.Join(err, os.WriteFile(failed, []byte(err.Error()), 0o600))
	}
	return nil
}

func (s system) allowed() error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return ErrNoApt
	}
	if os.Getenv("SETUP") == "1" {
		return nil
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil || s.uid != 0 {
		return ErrNotAllowed
	}
	return nil
}

// script installs package $1; while it does no service is started, unless the system's $2 has said already what it wants.
// It bounds the time itself, to $3 seconds: killed from outside it would leave $2 behind. That the lists of packages
// cannot be read anew matters only where the package cannot be installed then.
const script = `set -e
policy=$2
trap 'exit 1' HUP INT TERM
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
timeout --verbose --kill-after=10 "$3" sh -c '
	apt-get -o DPkg::Lock::Timeout=180 update -qq || true
	apt-get -o DPkg::Lock::Timeout=180 install -y -qq --no-install-recommends "$1"' sh "$1"`

func (s system) run(pkg string) error {
	args := []string{"sh", "-c", script, "sh", pkg, s.policy, fmt.Sprint(s.timeout.Seconds())}
	if s.uid != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	if out, err := exec.CommandContext(context.Background(), args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("install %s: %w: %s", pkg, err, LastLines(string(out), 5))
	}
	return nil
}

// LastLines is the end of what a program has printed, for an error.
func LastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
