package rabbit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/apt"
	"github.com/luatx/luatx/internal/test/child"
)

const (
	startTimeout = 90 * time.Second
	// config keeps the node from blocking publishers on a small disk, and sets a message limit that tests can reach.
	config = "disk_free_limit.absolute = 10MB\nmax_message_size = 1048576\n"
)

// Node is a broker for tests.
type Node struct {
	dir, program     string
	port             int
	env              []string
	owner            *syscall.Credential
	broker, portmaps *child.Process
	closed           sync.Once
	err              error
}

// Start starts a node and waits until it accepts connections.
func Start(ctx context.Context) (*Node, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	n := &Node{program: path}
	if err := n.prepare(); err != nil {
		return nil, err
	}
	if err := n.Run(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// prepare creates the node's directory, names and ports. The broker refuses to run as root. By default, it would share a port
// mapper daemon with all nodes of the machine, which outlives it, so the node has its own.
func (n *Node) prepare() error {
	var err error
	if n.owner, err = child.Owner("rabbitmq"); err != nil {
		return err
	}
	if n.dir, err = child.Directory("luatx-rabbit-", n.owner); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(n.dir, "rabbitmq.conf"), []byte(config), 0o644); err != nil { //nolint:gosec // its owner is somebody else
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	n.port = ports[0]
	keep := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "RABBITMQ_") || strings.HasPrefix(v, "ERL_") || strings.HasPrefix(v, "HOME=")
	})
	n.env = append(keep,
		"HOME="+n.dir, "TMPDIR="+n.dir, "LC_ALL=C.UTF-8", "RUNNING_UNDER_SYSTEMD=true", // the broker replaces the shell
		"ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT="+strconv.Itoa(ports[1]),
		"RABBITMQ_NODENAME=luatx"+filepath.Base(n.dir)[len("luatx-rabbit-"):]+"@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT="+strconv.Itoa(ports[0]), "RABBITMQ_DIST_PORT="+strconv.Itoa(ports[2]),
		"RABBITMQ_MNESIA_BASE="+filepath.Join(n.dir, "data"), "RABBITMQ_LOG_BASE="+filepath.Join(n.dir, "log"), "RABBITMQ_LOGS=-",
		"RABBITMQ_CONFIG_FILE="+filepath.Join(n.dir, "rabbitmq"), "RABBITMQ_CONF_ENV_FILE="+filepath.Join(n.dir, "none"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(n.dir, "plugins"),
	)
	n.portmaps, err = n.start("epmd", "-port", strconv.Itoa(ports[1]), "-address", "127.0.0.1")
	return err
}

// Run starts the broker with its stored data.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var err error
	if n.broker, err = n.start(n.program); err != nil {
		return err
	}
	err = n.broker.Await(ctx, func() string { return apt.LastLines(n.Log(), 10) }, func() error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.Addr())
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return fmt.Errorf("rabbit: the node accepts no connections: %w", err)
	}
	return nil
}

// Addr returns the address on which the node listens.
func (n *Node) Addr() string { return "127.0.0.1:" + strconv.Itoa(n.port) }

// URL returns the URL, with user and password, of the node or of a proxy at another address.
func URL(addr string) string { return "amqp://guest:guest@" + addr + "/" }

// Kill stops the broker like a power failure. Run starts it again.
func (n *Node) Kill() error { return n.broker.Kill() }

// Log returns the output of the broker.
func (n *Node) Log() string {
	text, _ := os.ReadFile(filepath.Join(n.dir, "out")) // used in messages only
	return string(text)
}

// Close stops the node and removes its data.
func (n *Node) Close() error {
	n.closed.Do(func() {
		for _, p := range []*child.Process{n.broker, n.portmaps} {
			if p != nil {
				n.err = errors.Join(n.err, p.Kill())
			}
		}
		n.err = errors.Join(n.err, os.RemoveAll(n.dir))
	})
	return n.err
}

// freePorts returns different ports. No outgoing connection gets one of them while the node starts.
func freePorts(n int) ([]int, error) {
	var ports []int
	for len(ports) < n {
		port, err := child.FreePort()
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

func (n *Node) start(path string, args ...string) (*child.Process, error) {
	out, err := os.OpenFile(filepath.Join(n.dir, "out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = n.dir, n.env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: n.owner}
	return child.Start(cmd)
}

var shared = sync.OnceValues(func() (*Node, error) { return Start(context.Background()) })

// Shared returns the shared node of this test process. Tests use different names of queues and exchanges. If RabbitMQ is missing,
// the test is skipped, or fails in CI. End stops the node.
func Shared(t testing.TB) *Node {
	t.Helper()
	Need(t)
	n, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	used.Store(n)
	return n
}

// Need skips the test if RabbitMQ is missing, and fails it in CI.
func Need(t testing.TB) {
	t.Helper()
	_, err := program()
	switch {
	case err == nil:
	case os.Getenv("CI") != "" || os.Getenv(envBin) != "":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

var used atomic.Pointer[Node]

// End stops the shared node, if there is one.
func End() error {
	if n := used.Load(); n != nil {
		return n.Close()
	}
	return nil
}
