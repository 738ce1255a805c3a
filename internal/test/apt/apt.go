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
	ErrNotAllowed = errors.New("not installed automatically; run as root on Debian, or set SETUP=1")
	ErrOff        = errors.New("not installed automatically, because SETUP=0 disables it")
	ErrNoApt      = errors.New("not installed automatically, because apt-get is missing")
)

// Install installs a package, unless what it brings is there, and says so in one line on the standard error before. It does
// so once for all test processes: they wait for each other, and a failure of one spares the others theirs. No service of the
// package is started: tests start servers of their own. Beside the package no file stays, but for a note of a failure in the
// directory for temporary files.
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
	program, err := s.allowed()
	if err != nil {
		return err
	}
	unlock, err := lockFile(program)
	if err != nil {
		return err
	}
	defer unlock()
	if there() {
		return nil
	}
	failed := filepath.Join(os.TempDir(), "luatx-apt-"+strconv.Itoa(s.uid)+"-"+pkg+".failed")
	if info, err := os.Stat(failed); err == nil && time.Since(info.ModTime()) < failureCounts {
		return fmt.Errorf("the last installation failed moments ago; see %s", failed)
	}
	fmt.Fprintf(os.Stderr, "luatx: installing the Debian package %s as root, for tests; SETUP=0 prevents it\n", pkg)
	if err := s.run(pkg); err != nil {
		return errors.Join(err, os.WriteFile(failed, []byte(err.Error()), 0o600))
	}
	return nil
}

// allowed returns the path of apt-get, or why nothing may be installed.
func (s system) allowed() (program string, err error) {
	setup := os.Getenv("SETUP")
	if setup == "0" {
		return "", ErrOff
	}
	program, err = exec.LookPath("apt-get")
	if err != nil {
		return "", ErrNoApt
	}
	if setup == "1" {
		return program, nil
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil || s.uid != 0 {
		return "", ErrNotAllowed
	}
	return program, nil
}

// script installs package $1 and prevents dpkg from starting its services meanwhile. $2 is the policy that dpkg asks; if it
// exists already, it is the administrator's, and stays. Otherwise a guard in a session of its own removes it, also if the
// installation is killed: it waits until no process of the installation has the pipe open. Without its guard the policy
// allows everything and removes itself. The script bounds its time to $3 seconds, since killing it does not end apt-get.
// An update of the lists of packages that fails matters only if the installation then fails.
const script = `set -e
policy=$2
trap 'exit 1' HUP INT TERM
if [ ! -e "$policy" ]; then
	dir=$(mktemp -d)
	mkfifo "$dir/alive"
	setsid sh -c 'trap "" HUP INT; cat "$1/alive"; rm -rf -- "$1" "$2"' sh "$dir" "$policy" >/dev/null 2>&1 </dev/null &
	guard=$!
	trap 'rm -f -- "$policy"; kill "$guard" 2>/dev/null; rm -rf -- "$dir"' EXIT
	exec 9<>"$dir/alive"
	printf '#!/bin/sh\nkill -0 %s 2>/dev/null && exit 101\nrm -f -- "$0"\n' "$guard" >"$policy"
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
