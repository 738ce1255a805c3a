package brokertest

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/luatx/luatx/internal/test/child"
	"github.com/luatx/luatx/internal/test/redistest"
)

// EnvMember is the variable that makes the test program a member of a Crew. Its value is the arguments of the member.
const EnvMember = "LUATX_TEST_MEMBER"

// Member returns the arguments if this process is a member of a Crew.
func Member() (args []string, ok bool) {
	text, ok := os.LookupEnv(EnvMember)
	return strings.Fields(text), ok
}

// Crew is the members of a service in processes of their own, which the test kills.
type Crew struct {
	t       testing.TB
	args    string
	members []*child.Process
	Kills   int
	Stalls  int
}

// NewCrew starts members. They end with the test.
func NewCrew(t testing.TB, size int, args ...string) *Crew {
	t.Helper()
	c := &Crew{t: t, args: strings.Join(args, " "), members: make([]*child.Process, size)}
	c.StartAll()
	t.Cleanup(c.end)
	return c
}

// StartAll starts every member.
func (c *Crew) StartAll() {
	for i := range c.members {
		c.start(i)
	}
}

func (c *Crew) start(i int) {
	cmd := exec.CommandContext(c.t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), EnvMember+"="+c.args), os.Stderr
	member, err := child.Start(cmd)
	redistest.Must(c.t, err)
	c.members[i] = member
}

// KillAll kills every member.
func (c *Crew) KillAll() {
	c.end()
	c.Kills += len(c.members)
}

func (c *Crew) end() {
	for _, member := range c.members {
		_ = member.Kill() // it may have ended
	}
}

// KillOne kills a member and starts another one.
func (c *Crew) KillOne() {
	i := rand.IntN(len(c.members))
	_ = c.members[i].Kill() // it may have ended
	c.Kills++
	c.start(i)
}

// Stall stops a member, which returns to life when the function returned is called.
func (c *Crew) Stall() (wake func()) {
	member := c.members[rand.IntN(len(c.members))]
	redistest.Must(c.t, member.Signal(syscall.SIGSTOP))
	c.Stalls++
	return func() { _ = member.Signal(syscall.SIGCONT) } // it may be dead by then
}
