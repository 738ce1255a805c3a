package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/apt"
)

// Environment variables that choose what tests run against.
const (
	EnvBinary   = "LUATX_REDIS_SERVER" // path of the server program
	EnvExternal = "LUATX_TEST_REDIS"   // host:port of a running server
	envCI       = "CI"                 // set: what is missing fails instead of skipping
)

// ErrNoServer says that no server program was found and that none could be installed.
var ErrNoServer = errors.New("no redis-server found")

const howToGet = "install redis-server or valkey-server, set " + EnvBinary + " to its path, or set SETUP=1 to install it"

// Binary is a server program.
type Binary struct {
	Path    string
	Version string // as the program reports it, such as "7.0.15"
}

// AtLeast reports whether the version is major.minor or later.
func (b Binary) AtLeast(major, minor int) bool {
	ma, mi := splitVersion(b.Version)
	return ma > major || ma == major && mi >= minor
}

// asRedis gives a Valkey the version of Redis whose commands it has.
func (b Binary) asRedis() Binary {
	if strings.Contains(b.Path, "valkey") {
		if b.AtLeast(9, 0) {
			b.Version = "7.4.0"
		} else {
			b.Version = "7.2.4"
		}
	}
	return b
}

// HasCommandsOf reports whether the program has the commands of Redis major.minor. A Valkey has those of an older Redis than its
// version.
func (b Binary) HasCommandsOf(major, minor int) bool { return b.asRedis().AtLeast(major, minor) }

// NeedCommandsOf skips the test where the server program has not the commands of Redis major.minor.
func NeedCommandsOf(t testing.TB, major, minor int) {
	t.Helper()
	ownServers(t)
	Need(t)
	if bin, err := Find(); err != nil || !bin.HasCommandsOf(major, minor) {
		t.Skipf("needs a server with the commands of Redis %d.%d, but %s is version %s: set %s to a newer one", major, minor, bin.Path, bin.Version, EnvBinary)
	}
}

// noDirective is a directive that no version knows: a program that is given it reads the configuration before it, and ends.
const noDirective = "luatx-no-such-directive"

// HasTLS reports whether the program was built with TLS, which is an option of the build.
func (b Binary) HasTLS() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// The program complains about the first directive that it does not know.
	out, _ := exec.CommandContext(ctx, b.Path, "--tls-port", "0", "--"+noDirective, "yes").CombinedOutput()
	return strings.Contains(string(out), noDirective)
}

var findOnce = sync.OnceValues(find)

// Find returns the server program, and installs one where that is allowed. It looks once a process.
// The error is ErrNoServer with what to do.
func Find() (Binary, error) { return findOnce() }

func find() (Binary, error) {
	if path := os.Getenv(EnvBinary); path != "" {
		return inspect(path)
	}
	if path := lookPath(); path != "" {
		return inspect(path)
	}
	if err := apt.Install("redis-server", func() bool { return lookPath() != "" }); err != nil {
		return Binary{}, fmt.Errorf("%w: %s (%w)", ErrNoServer, howToGet, err)
	}
	path := lookPath()
	if path == "" {
		return Binary{}, fmt.Errorf("%w: %s", ErrNoServer, howToGet)
	}
	return inspect(path)
}

func lookPath() string {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

var versionPattern = regexp.MustCompile(`\bv=(\d+\.\d+\.\d+)`)

func inspect(path string) (Binary, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return Binary{}, fmt.Errorf("%w: %s --version: %w", ErrNoServer, path, err)
	}
	match := versionPattern.FindSubmatch(out)
	if match == nil {
		return Binary{}, fmt.Errorf("%w: %s --version printed %q", ErrNoServer, path, out)
	}
	return Binary{Path: path, Version: string(match[1])}, nil
}

// Found describes in one line what there is to test with, and what is missing.
func Found() string {
	var parts []string
	if addr := os.Getenv(EnvExternal); addr != "" {
		parts = append(parts, "external server "+addr)
	}
	if bin, err := Find(); err != nil {
		parts = append(parts, err.Error())
	} else {
		parts = append(parts, fmt.Sprintf("server %s at %s", bin.Version, bin.Path))
	}
	return strings.Join(append(parts, foundEngine()), "; ")
}

func foundEngine() string {
	for _, name := range []string{"docker", "podman"} {
		if _, err := exec.LookPath(name); err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := exec.CommandContext(ctx, name, "info").Run(); err != nil {
			return "container engine " + name + " is not running (start it to test other server versions)"
		}
		return "container engine " + name
	}
	return "no container engine (install docker or podman to test other server versions)"
}
