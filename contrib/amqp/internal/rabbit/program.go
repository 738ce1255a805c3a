// Package rabbit starts RabbitMQ nodes for tests, on loopback and in temporary directories.
package rabbit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/luatx/luatx/internal/test/apt"
)

const (
	envBin = "LUATX_RABBITMQ_BIN" // directory of rabbitmq-server
	howTo  = "no RabbitMQ found: install rabbitmq-server, name the directory of its rabbitmq-server in " + envBin + ", or set SETUP=1 to install it"
)

// find returns the program that runs a node in the foreground. Debian's program on PATH only runs the system's node.
func find() (string, bool) {
	dirs := []string{"/usr/lib/rabbitmq/bin", "/usr/local/sbin", "/opt/rabbitmq/sbin", "/opt/homebrew/sbin"}
	if dir := os.Getenv(envBin); dir != "" {
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

// program returns the path of the program, and installs it if that is allowed.
func program() (string, error) {
	if path, ok := find(); ok {
		return path, nil
	}
	if err := install(); err != nil {
		return "", fmt.Errorf("%s (%w)", howTo, err)
	}
	path, ok := find()
	if !ok {
		return "", errors.New(howTo)
	}
	return path, nil
}

// install installs RabbitMQ, unless a directory was named, which is then the only place to search.
func install() error {
	if os.Getenv(envBin) != "" {
		return apt.ErrNotAllowed
	}
	return apt.Install("rabbitmq-server", func() bool { _, ok := find(); return ok })
}

// Found returns a line about the available RabbitMQ. It installs a missing one if that is allowed.
func Found() string {
	path, err := program()
	if err != nil {
		return err.Error()
	}
	return "RabbitMQ at " + path + version()
}

// version returns the version of Debian's package, because the server needs seconds to report its own.
func version() string {
	out, err := exec.CommandContext(context.Background(), "dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server").Output()
	if err != nil {
		return ""
	}
	return ", " + string(out)
}
