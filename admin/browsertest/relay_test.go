package browsertest

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// relayAddrs is the environment variable that makes this program a relay. It has the addresses of the servers.
const relayAddrs = "BROWSERTEST_RELAY"

// shop returns the Transactor of the service at some servers.
func shop(client redis.UniversalClient) (*luatx.Transactor, error) {
	return luatx.New(client, luatx.Config{Namespace: "shop", Keyspace: luatx.Partitions(16).WithPrefix("order")})
}

// slow is the destination that does not respond.
const slow = "slow"

// runRelay publishes the events of the service until a signal. The destination slow never responds.
func runRelay(addrs []string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
	defer client.Close() //nolint:errcheck // the process ends
	tr, err := shop(client)
	if err != nil {
		log.Fatal(err)
	}
	publish := func(ctx context.Context, events []*message.RawMessage) []error {
		if slices.ContainsFunc(events, func(e *message.RawMessage) bool { return e.Destination() == slow }) {
			<-ctx.Done()
			return slices.Repeat([]error{errors.New("the destination does not respond")}, len(events))
		}
		return make([]error, len(events))
	}
	r, err := relay.New(tr, relay.PublisherFunc(publish), relay.Config{Lease: 10 * time.Minute, SweepInterval: 100 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	if err := r.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// startRelay starts a process that relays events, until the test ends.
func startRelay(t testing.TB, addrs []string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	redistest.Must(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), relayAddrs+"="+strings.Join(addrs, ","))
	out, err := cmd.StdoutPipe()
	redistest.Must(t, err)
	redistest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	_, err = fmt.Fscanln(out, new(string))
	redistest.Must(t, err)
	return cmd
}
