package redistest_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

const envChild = "LUATX_REDISTEST_CHILD"

// TestChildProcessStartsAServer runs in the process that the tests below start.
func TestChildProcessStartsAServer(t *testing.T) {
	if os.Getenv(envChild) == "" {
		t.Skip("runs only as a child of other tests")
	}
	s := redistest.Single(t, redistest.Own())
	redistest.Must(t, assert.ErrOf(os.Stdout.WriteString("started "+strconv.Itoa(s.Pid())+" in "+s.Dir()+"\n")))
	if os.Getenv(envChild) == "wait" {
		<-t.Context().Done() // until the parent kills this process
	}
}

// child runs TestChildProcessStartsAServer with nothing but the environment given.
func child(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChildProcessStartsAServer$", "-test.v")
	cmd.Env = append([]string{"TMPDIR=" + t.TempDir()}, env...)
	return cmd
}

func TestServersEndWhenTestProcessIsKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills the children of a killed process")
	}
	redistest.Need(t)
	cmd := child(t, envChild+"=wait", "PATH="+os.Getenv("PATH"))
	out, err := cmd.StdoutPipe()
	redistest.Must(t, err)
	redistest.Must(t, cmd.Start())
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "started "); ok {
			number, _, _ := strings.Cut(text, " ")
			pid, err = strconv.Atoi(number)
			redistest.Must(t, err)
		}
	}
	process, err := os.FindProcess(pid)
	redistest.Must(t, err)
	redistest.Must(t, process.Signal(syscall.Signal(0)))
	redistest.Must(t, cmd.Process.Kill())
	redistest.Eventually(t, "the server to exit", func() bool { return process.Signal(syscall.Signal(0)) != nil || isZombie(pid) })
	if err := cmd.Wait(); err == nil {
		t.Error("the child was not killed")
	}
}

// isZombie says that the process has ended, though nobody has asked for its status: where the container has no init.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestMissingServerSkipsOrFailsTheTest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		env  []string
		want string
		fail bool
	}{
		{"skips with instructions", nil, "--- SKIP", false},
		{"fails in CI", []string{"CI=true"}, "--- FAIL", true},
		{"fails if the configured path is missing", []string{redistest.EnvBinary + "=/no/such/server"}, "/no/such/server", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, err := child(t, append(tt.env, envChild+"=1", "PATH=")...).CombinedOutput()
			text := string(out)
			if !strings.Contains(text, tt.want) || (err != nil) != tt.fail || !strings.Contains(text, "install redis-server") && tt.want[0] == '-' {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

func TestServerDirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	s, err := redistest.Start(t.Context())
	redistest.Must(t, err)
	redistest.Must(t, os.WriteFile(filepath.Join(s.Dir(), "left"), nil, 0o600))
	redistest.Must(t, s.Close())
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("directory %s still exists: %v", s.Dir(), err)
	}
}
