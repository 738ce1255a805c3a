package apt

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/assert"
)

const (
	pkg      = "luatx-no-such-package"
	envChild = "LUATX_APT_CHILD" // the directory of a fake
	envUID   = "LUATX_APT_UID"
)

// fakeApt installs a file, or does what the test has put into the file do. It says when a service would be started.
const fakeApt = `#!/bin/sh
echo "$*" >>"$LUATX_APT_CHILD/calls"
case "$*" in *" install "*) ;; *) exit 0 ;; esac
"$LUATX_APT_CHILD/policy"
[ $? -eq 101 ] || echo "a service was started" >>"$LUATX_APT_CHILD/calls"
[ ! -e "$LUATX_APT_CHILD/do" ] || . "$LUATX_APT_CHILD/do"
echo >"$LUATX_APT_CHILD/program"
`

// fakeSudo does not make anybody root.
const fakeSudo = `#!/bin/sh
[ "$1" = -n ] || exit 1
shift
echo sudo >>"$LUATX_APT_CHILD/calls"
exec "$@"
`

// fake is a system whose apt-get installs nothing, in a directory. Those that ask it are processes of their own.
type fake string

func newFake(t *testing.T) fake {
	t.Helper()
	if _, err := exec.LookPath("timeout"); err != nil {
		t.Skip("needs the timeout program of coreutils, as on Debian")
	}
	f := fake(t.TempDir())
	f.write(t, "apt-get", fakeApt)
	f.write(t, "sudo", fakeSudo)
	return f
}

func (f fake) path(name string) string { return filepath.Join(string(f), name) }

func (f fake) write(t *testing.T, name, text string) {
	t.Helper()
	assert.Must(t, os.WriteFile(f.path(name), []byte(text), 0o700))
}

func (f fake) exists(name string) bool {
	_, err := os.Stat(f.path(name))
	return !errors.Is(err, fs.ErrNotExist)
}

func (f fake) installs(t *testing.T) int {
	t.Helper()
	calls, err := os.ReadFile(f.path("calls"))
	assert.Must(t, err)
	if strings.Contains(string(calls), "a service was started") {
		t.Error("a service was started")
	}
	return strings.Count(string(calls), " install -y -qq --no-install-recommends "+pkg+"\n")
}

// command prepares a process that asks for the package.
func (f fake) command(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChildProcessInstallsThePackage$", "-test.v")
	cmd.Env = append([]string{
		envChild + "=" + string(f), envUID + "=0", "SETUP=1", "TMPDIR=" + string(f),
		"PATH=" + string(f) + string(filepath.ListSeparator) + os.Getenv("PATH"),
	}, env...)
	return cmd
}

// ask runs such a process, and returns what it says.
func (f fake) ask(t *testing.T, env ...string) (string, error) {
	t.Helper()
	out, err := f.command(t, env...).CombinedOutput()
	return string(out), err
}

// TestChildProcessInstallsThePackage runs in the processes that the tests below start.
func TestChildProcessInstallsThePackage(t *testing.T) {
	f := fake(os.Getenv(envChild))
	if f == "" {
		t.Skip("runs only as a child of other tests")
	}
	uid, err := strconv.Atoi(os.Getenv(envUID))
	assert.Must(t, err)
	s := system{uid: uid, policy: f.path("policy"), timeout: installTimeout}
	if text := os.Getenv("TIMEOUT"); text != "" {
		if s.timeout, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	assert.Must(t, s.install(pkg, func() bool { return f.exists("program") }))
}

func TestProcessesInstallOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var all []*exec.Cmd
	for range 4 {
		cmd := f.command(t)
		assert.Must(t, cmd.Start())
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	assert.Equal(t, f.installs(t), 1, "installations")
	if f.exists("policy") {
		t.Error("the policy still forbids services")
	}
}

func TestInstallationIsAnnouncedBeforeItRuns(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.write(t, "do", "echo apt-get runs; exit 100")
	out, err := f.ask(t)
	announced := strings.Index(out, "luatx: installing the Debian package "+pkg+" as root, for tests; SETUP=0 prevents it\n")
	ran := strings.Index(out, "apt-get runs")
	if err == nil || announced < 0 || ran < announced {
		t.Errorf("%v: %s", err, out)
	}
}

func TestInstallationLeavesNoFile(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	if out, err := f.ask(t); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	entries, err := os.ReadDir(string(f))
	assert.Must(t, err)
	for _, entry := range entries {
		if !slices.Contains([]string{"apt-get", "sudo", "calls", "program"}, entry.Name()) {
			t.Errorf("file %s was left behind", entry.Name())
		}
	}
}

// TestPolicyIsRemovedIfInstallationIsKilled kills every process of the installation except the guard, which has its own
// session.
func TestPolicyIsRemovedIfInstallationIsKilled(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.write(t, "do", `ps -o pid= --sid $(ps -o sid= -p $$) >"$LUATX_APT_CHILD/session"; kill -9 $(cat "$LUATX_APT_CHILD/session")`)
	child := f.command(t)
	cmd := exec.CommandContext(t.Context(), "setsid", append([]string{"--wait"}, child.Args...)...)
	cmd.Env = child.Env
	if err := cmd.Run(); err == nil || !f.exists("session") {
		t.Fatalf("the installation was not killed: %v", err)
	}
	wait(t, "the policy still forbids services", func() bool { return !f.exists("policy") })
}

// wait fails the test with a text unless the condition holds within 10 s.
func wait(t *testing.T, otherwise string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatal(otherwise)
		case <-again.C:
		}
	}
}

func TestPolicyWithoutItsGuardAllowsServicesAndIsRemoved(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.write(t, "do", `cp "$LUATX_APT_CHILD/policy" "$LUATX_APT_CHILD/left"`)
	if out, err := f.ask(t); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wait(t, "the policy still forbids services", func() bool { // the guard takes a moment to end
		return exec.CommandContext(t.Context(), f.path("left")).Run() == nil
	})
	if f.exists("left") {
		t.Error("the policy was not removed")
	}
}

func TestFailureIsRecorded(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.write(t, "do", "for n in 1 2 3 4 5 6; do echo line $n; done; exit 100")
	out, err := f.ask(t)
	if err == nil || !strings.Contains(out, "exit status 100: line 2\n") || !strings.Contains(out, "line 6") {
		t.Errorf("%v: %s", err, out)
	}
	if f.exists("policy") {
		t.Error("the policy still forbids services")
	}
	note := f.path("luatx-apt-0-" + pkg + ".failed")
	if out, err := f.ask(t); err == nil || !strings.Contains(out, "failed moments ago; see "+note) {
		t.Errorf("%v: %s", err, out)
	}
	assert.Equal(t, f.installs(t), 1, "tries")
	if text, err := os.ReadFile(note); err != nil || !strings.Contains(string(text), "line 6") {
		t.Errorf("the note contains %q: %v", text, err)
	}
	long := time.Now().Add(-failureCounts)
	assert.Must(t, errors.Join(os.Chtimes(note, long, long), os.Remove(f.path("do"))))
	if out, err := f.ask(t); err != nil || f.installs(t) != 2 {
		t.Errorf("an old failure prevents the installation: %v: %s", err, out)
	}
}

func TestInstallationTimesOut(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.write(t, "do", "sleep 60")
	if out, err := f.ask(t, "TIMEOUT=200ms"); err == nil || !strings.Contains(out, "exit status 124: timeout: sending signal") {
		t.Errorf("%v: %s", err, out)
	}
	if f.exists("policy") {
		t.Error("the policy still forbids services")
	}
}

func TestPolicyOfTheSystemIsKept(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	const own = "#!/bin/sh\nexit 101 # by the administrator\n"
	f.write(t, "policy", own)
	if out, err := f.ask(t); err != nil || f.installs(t) != 1 {
		t.Errorf("%v: %s", err, out)
	}
	if text, err := os.ReadFile(f.path("policy")); err != nil || string(text) != own {
		t.Errorf("the system's policy is now %q: %v", text, err)
	}
}

func TestSudoIsUsedUnlessRoot(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	if out, err := f.ask(t, envUID+"=1000"); err != nil || f.installs(t) != 1 {
		t.Errorf("%v: %s", err, out)
	}
	if calls, err := os.ReadFile(f.path("calls")); err != nil || !strings.HasPrefix(string(calls), "sudo\n") {
		t.Errorf("sudo was not used: %s%v", calls, err)
	}
}

func TestInstallReturnsErrorIfNotAllowed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, uid, env string
		want           error
	}{
		{"no apt-get", "1000", "PATH=", ErrNoApt},
		{"neither root nor requested", "1000", "SETUP=", ErrNotAllowed},
		{"disabled", "0", "SETUP=0", ErrOff},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			if out, err := f.ask(t, envUID+"="+test.uid, test.env); err == nil || !strings.Contains(out, test.want.Error()) {
				t.Errorf("%v: %s", err, out)
			}
			if f.exists("calls") {
				t.Error("apt-get was called")
			}
		})
	}
}

func TestLastLinesReturnsTheEndOfAText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"", ""},
		{"one\n", "one"},
		{"one\ntwo\n", "one\ntwo"},
		{"one\ntwo\nthree\n\n", "two\nthree"},
	} {
		assert.Equal(t, LastLines(test.text, 2), test.want, "the last lines of %q", test.text)
	}
}
