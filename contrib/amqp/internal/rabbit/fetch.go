// Package rabbit starts RabbitMQ nodes for tests, on loopback and in temporary directories.
package rabbit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	fetchTimeout = 5 * time.Minute
	howTo        = "no RabbitMQ found: install rabbitmq-server, name the directory of its rabbitmq-server in LUATX_RABBITMQ_BIN, or set SETUP=1 to install it"
)

// find returns the program that runs a node in the foreground. The one on PATH of Debian insists on the system's node.
func find() (string, bool) {
	dirs := []string{"/usr/lib/rabbitmq/bin", "/usr/local/sbin", "/opt/rabbitmq/sbin", "/opt/homebrew/sbin"}
	if dir := os.Getenv("LUATX_RABBITMQ_BIN"); dir != "" {
		dirs = []string{dir}
	}
	_, noErlang := exec.LookPath("erl")
	_, noEpmd := exec.LookPath("epmd")
	for _, dir := range dirs {
		path := filepath.Join(dir, "rabbitmq-server")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && noErlang == nil && noEpmd == nil {
			return path, true
		}
	}
	return "", false
}

// program finds the program, and installs it where that is allowed.
func program() (string, error) {
	if path, ok := find(); ok {
		return path, nil
	}
	if err := fetch(); err != nil {
		return "", fmt.Errorf("%s (%w)", howTo, err)
	}
	path, ok := find()
	if !ok {
		return "", errors.New(howTo)
	}
	return path, nil
}

// fetch installs RabbitMQ once for all test processes: they wait for each other on a file lock, and one failure spares the
// others theirs.
func fetch() error {
	if os.Getenv("LUATX_RABBITMQ_BIN") != "" || !mayFetch() {
		return errors.New("not installed by itself: needs root on Debian, or SETUP=1")
	}
	base := filepath.Join(os.TempDir(), fmt.Sprintf("luatx-rabbit-%d", os.Getuid()))
	unlock, err := lockFile(base + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, ok := find(); ok {
		return nil
	}
	failed := base + ".failed"
	if info, err := os.Stat(failed); err == nil && time.Since(info.ModTime()) < 2*fetchTimeout {
		return fmt.Errorf("an installation failed just now, see %s", failed)
	}
	if err := install(); err != nil {
		return errors.Join(err, os.WriteFile(failed, []byte(err.Error()), 0o600))
	}
	return nil
}

func mayFetch() bool {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return false
	}
	if os.Getenv("SETUP") == "1" {
		return true
	}
	_, err := os.Stat("/etc/debian_version")
	return err == nil && os.Getuid() == 0
}

// script installs the package; while it does no service is started, unless the system has said already what it wants.
const script = `set -e
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
	trap 'rm -f $policy' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || true
apt-get -o DPkg::Lock::Timeout=180 install -y -qq --no-install-recommends rabbitmq-server`

func install() error {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	args := []string{"sh", "-c", script}
	if os.Getuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("install rabbitmq-server: %w: %s", err, lastLines(string(out), 5))
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
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Found describes in one line what there is to test with, and installs what is missing where that is allowed.
func Found() string {
	path, err := program()
	if err != nil {
		return err.Error()
	}
	return "RabbitMQ at " + path + version()
}

// version asks Debian's package: the server itself takes seconds to tell.
func version() string {
	out, err := exec.CommandContext(context.Background(), "dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server").Output()
	if err != nil {
		return ""
	}
	return ", " + string(out)
}
