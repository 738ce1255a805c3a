// Package matrix runs the tests of the core against several versions of Redis and Valkey in containers.
package matrix

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Environment variables.
const (
	envMatrix = "LUATX_MATRIX"        // 1: the tests that accept a server; all: every test. Each fails if there is no container engine
	envImages = "LUATX_MATRIX_IMAGES" // other images, separated by commas
	envSetup  = "LUATX_MATRIX_SETUP"  // a program that prepares the images
	envTable  = "LUATX_MATRIX_TABLE"  // the file for the table; if empty, none is written
)

// images returns the images to test.
func images() []string {
	list := os.Getenv(envImages)
	if list == "" {
		list = "redis:6.0,redis:7.0,redis:8.0,redis:8.6,valkey/valkey:8.1,valkey/valkey:9.1"
	}
	return strings.Split(list, ",")
}

// served lists the packages whose tests accept a running server.
var served = []string{".", "./test/...", "./pipeline", "./inbox", "./outbox", "./relay", "./stack", "./stream", "./expiry", "./repair", "./internal/command/...", "./internal/test/redistest"}

// core lists all packages whose tests need a server.
var core = append([]string{"./admin/...", "./cmd/...", "./internal/commit", "./internal/eval", "./internal/record", "./internal/rekey", "./internal/shard"}, served...)

// twins lists the packages whose tests compare compiled scripts with the general one, on a server that they start.
var twins = []string{"./internal/commit"}

// wanted reports whether the tests were requested, and whether all of them were.
func wanted(t *testing.T) (must, all bool) {
	t.Helper()
	asked := os.Getenv(envMatrix)
	if asked == "" && os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("the version matrix takes minutes: set LUATX_MATRIX=1, or all")
	}
	if asked == "" {
		testcontainers.SkipIfProviderIsNotHealthy(t)
	}
	return asked != "", asked == "all"
}

// prepared runs the program that prepares the images, once.
var prepared = sync.OnceValue(func() error {
	setup := os.Getenv(envSetup)
	if setup == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, setup).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", setup, err, out)
	}
	return nil
})

// TestEveryServerVersionPassesTheTests runs the core's tests on every version. Tests that accept a server run on one in a
// container. The comparison of the two ways to commit runs on the image's program; with LUATX_MATRIX=all, so do all other
// tests, including those with clusters and kills. Commits also run on a cluster of containers whose network is cut and healed.
//
// With LUATX_MATRIX=1 it takes half an hour on two cores, and tests the cluster only with the last image. With
// LUATX_MATRIX=all it takes an hour.
func TestEveryServerVersionPassesTheTests(t *testing.T) {
	required, all := wanted(t)
	must(t, prepared())
	list := images()
	rows := make([]row, len(list))
	own := twins
	if all {
		own = core
	}
	few, whole := build(t, served), build(t, own)
	for i, image := range list {
		r := &rows[i]
		r.image = image
		t.Run(strings.ReplaceAll(image, "/", " "), func(t *testing.T) { // a name with / would have two levels
			defer func() { r.failed = t.Failed() }()
			t.Run("container", func(t *testing.T) { r.container = onContainer(t, image, few, required, r) })
			t.Run("program", func(t *testing.T) {
				r.program = suite(t, whole, "LUATX_REDIS_SERVER="+programOf(t, image)).String()
			})
			if all || i == len(list)-1 {
				t.Run("cut", func(t *testing.T) {
					r.cut = partition(t, image)
					t.Log(r.cut)
				})
			}
		})
	}
	if name := os.Getenv(envTable); name != "" {
		must(t, writeTable(name, rows))
	}
}

// onContainer runs the tests that accept a server on one in a container.
func onContainer(t *testing.T, image string, programs []program, required bool, r *row) string {
	t.Helper()
	container, err := testcontainers.Run(t.Context(), image,
		testcontainers.WithExposedPorts("6379/tcp"),
		testcontainers.WithWaitStrategy(wait.ForListeningPort("6379/tcp")))
	testcontainers.CleanupContainer(t, container)
	if err != nil && required {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("image %s could not be started: make it, or let the engine pull it: %v", image, err)
	}
	addr, err := container.PortEndpoint(t.Context(), "6379/tcp", "")
	must(t, err)
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	info, err := client.Info(t.Context(), "server").Result()
	must(t, err)
	r.version = versionOf(info)
	n := suite(t, programs, "LUATX_TEST_REDIS="+addr)
	t.Log(n)
	return n.String()
}
