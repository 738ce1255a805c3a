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
	// config keeps the node from blocking publishers on a small disk, and bounds messages where tests can reach.
	config = "disk_free_limit.absolute = 10MB\nmax_message_size = 1048576\n"
)

// Node is a broker of its own.
type Node struct {
	dir, program     string
	port             int
	env              []string
	owner            *syscall.Credential
	broker, portmaps *child.Process
	closed           sync.Once
	err              error
}

// Start starts a node, and waits until it takes connections.
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

// prepare makes the node's directory, names and ports. The broker refuses to work as root, and would start a daemon that
// maps the ports of all nodes of the machine, and outlives it: the node has one of its own.
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

// Run starts the broker on what it has stored.
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
		return fmt.Errorf("rabbit: the node takes no connections: %w", err)
	}
	return nil
}

// Addr is where it listens; URL is that with user and password.
func (n *Node) Addr() string { return "127.0.0.1:" + strconv.Itoa(n.port) }

// URL names the node, or what passes on to it from another address.
func URL(addr string) string { return "amqp://guest:guest@" + addr + "/" }

// Kill ends the broker as a power cut does. Run starts it again.
func (n *Node) Kill() error { return n.broker.Kill() }

// Log is what the broker has printed.
func (n *Node) Log() string {
	text, _ := os.ReadFile(filepath.Join(n.dir, "out")) // for messages alone
	return string(text)
}

// Close ends the node, and removes what it has stored.
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

func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }() // all at once, so that they differ
		addr, ok := listener.Addr().(*net.TCPAddr)
		if !ok {
			return nil, errors.New("rabbit: no TCP port")
		}
		ports[i] = addr.Port
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

// Shared returns the one node of this test process: tests keep apart by the names of queues and exchanges. Where there is
// no RabbitMQ the test is skipped, and fails in CI. End ends the node.
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

// Need skips the test where there is no RabbitMQ, and fails it in CI.
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

// End ends the shared node, where there is one.
func End() error {
	if n := used.Load(); n != nil {
		return n.Close()
	}
	return nil
}
