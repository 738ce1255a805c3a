// Package matrix runs the tests of the core against several versions of Redis and Valkey, in containers.
package matrix

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// images are the versions: LUATX_MATRIX_IMAGES names others, separated by commas.
func images() []string {
	list := os.Getenv("LUATX_MATRIX_IMAGES")
	if list == "" {
		list = "redis:6.0,redis:7.0,redis:8.0,valkey/valkey:8.1"
	}
	return strings.Split(list, ",")
}

// packages are the ones whose tests take a server that is already there.
var packages = []string{".", "./inbox", "./outbox", "./relay", "./stack", "./stream", "./expiry", "./repair", "./internal/command/...", "./internal/redistest"}

// TestMatrix holds the core's tests on every version. Tests that start servers of their own skip themselves.
//
// It takes a minute, and so runs only where LUATX_MATRIX or LUATX_VERIFY is set; under the first a missing container
// engine, or a container that does not start, is a failure.
func TestMatrix(t *testing.T) {
	wanted := os.Getenv("LUATX_MATRIX") != ""
	if !wanted && os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("the version matrix takes a minute: set LUATX_MATRIX=1")
	}
	if !wanted {
		testcontainers.SkipIfProviderIsNotHealthy(t)
	}
	for _, image := range images() {
		t.Run(image, func(t *testing.T) {
			container, err := testcontainers.Run(t.Context(), image,
				testcontainers.WithExposedPorts("6379/tcp"),
				testcontainers.WithWaitStrategy(wait.ForListeningPort("6379/tcp")))
			testcontainers.CleanupContainer(t, container)
			if err != nil && wanted {
				t.Fatal(err)
			}
			if err != nil {
				t.Skipf("image %s could not be started: make it, or let the engine pull it: %v", image, err)
			}
			addr, err := container.PortEndpoint(t.Context(), "6379/tcp", "")
			if err != nil {
				t.Fatal(err)
			}
			run := exec.CommandContext(t.Context(), "go", append([]string{"test", "-count=1"}, packages...)...)
			run.Dir = ".."
			run.Env = append(os.Environ(), "LUATX_TEST_REDIS="+addr, "CI=")
			out, err := run.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
				return
			}
			t.Logf("\n%s", out)
		})
	}
}
