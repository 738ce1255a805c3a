package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/cmd/luatx/internal/shop"
	"github.com/luatx/luatx/internal/test/redistest"
)

// asMain makes the test program the program itself: for processes that a test sends signals to.
const asMain = "LUATX_TEST_AS_MAIN"

// TestMain is also the worker: the demo starts its own program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerCommand || os.Getenv(asMain) != "" {
		main()
		return
	}
	redis.SetLogger(silence{})
	redistest.Main(m)
}

// run runs a command in this process.
func run(ctx context.Context, stdin string, args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = command(ctx, args, standard{strings.NewReader(stdin), &out, &err})
	return status, out.String(), err.String()
}

// someOrders are fewer than the built-in ones.
func someOrders(n int) []shop.Order { return shop.BuiltIn(7)[:n] }

// ordersFile writes orders as JSON lines of CloudEvents.
func ordersFile(t *testing.T, orders []shop.Order) string {
	t.Helper()
	var text bytes.Buffer
	for _, order := range orders {
		msg, err := order.ToMessage()
		if err != nil {
			t.Fatal(err)
		}
		line, err := msg.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(line, '\n'))
	}
	name := filepath.Join(t.TempDir(), "orders.jsonl")
	if err := os.WriteFile(name, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// parseReport reads the JSON of a run, which must be one object of the known fields.
func parseReport(t *testing.T, stdout string) shop.Report {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(stdout))
	decoder.DisallowUnknownFields()
	var report shop.Report
	if err := decoder.Decode(&report); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if rest, err := io.ReadAll(decoder.Buffered()); err != nil || len(bytes.TrimSpace(rest)) > 0 {
		t.Fatalf("more than one object: %s, %v", stdout, err)
	}
	return report
}

// wantExact checks a scripted run against the orders, and that workers died in it.
func wantExact(t *testing.T, result *shop.Result, orders []shop.Order, kills int) {
	t.Helper()
	expected := shop.Expect(orders)
	if result == nil {
		t.Fatal("no result of the scripted mode")
	}
	if result.Messages != len(orders) || !expected.Exact(*result) {
		t.Errorf("the scripted mode's books are not exact: %+v", *result)
	}
	wantFire(t, result, kills)
}

func wantFire(t *testing.T, result *shop.Result, kills int) {
	t.Helper()
	if result.Kills != kills {
		t.Errorf("%d workers were killed, want %d", result.Kills, kills)
	}
	if result.PerSecond <= 0 || result.P50Ms <= 0 || result.P99Ms < result.P50Ms {
		t.Errorf("the speed is %v a second, p50 %v ms, p99 %v ms", result.PerSecond, result.P50Ms, result.P99Ms)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, stdout string }{
		{"", "luatx demo"},
		{"help", "luatx demo"},
		{"-h", "luatx demo"},
		{"--help", "luatx version"},
		{"version", "luatx "},
		{"--version", "go1."},
		{"demo -h", "-kill-every"},
		{"demo --help", "pipeline mode"},
	} {
		status, stdout, stderr := run(t.Context(), "", strings.Fields(test.args)...)
		if status != 0 || !strings.Contains(stdout, test.stdout) || stderr != "" {
			t.Errorf("luatx %s: status %d, prints %q and %q", test.args, status, stdout, stderr)
		}
		if strings.Contains(stdout, workerCommand) {
			t.Errorf("luatx %s speaks of %s", test.args, workerCommand)
		}
	}
}

// What the user got wrong is one line and status 2, before anything runs.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	empty := ordersFile(t, nil)
	for _, test := range []struct{ args, stdin, want string }{
		{"sell", "", `unknown command "sell"`},
		{"demo now", "", `unexpected argument "now"`},
		{"demo --speed=1", "", "-speed"},
		{"demo --workers=x", "", "-workers"},
		{"demo --workers=0 --rate=-1", "", "--rate"},
		{"demo --mode=fast", "", "--mode"},
		{"demo --orders=/no/such/file", "", "/no/such/file"},
		{"demo --orders=" + empty, "", "is empty"},
		{"demo --orders=-", "neither\n", "standard input"},
		{"demo --orders=-", `{"data":{}}` + "\n", "no orders"},
		{"demo --redis=localhost", "", "host:port"},
		{"demo --redis=http://localhost", "", "--redis"},
		{"demo --redis=unix:///tmp/redis.sock", "", "rediss://"},
		{"demo --redis=127.0.0.1:1", "", "127.0.0.1:1"},
		{"demo --redis=127.0.0.1:1,127.0.0.1:2", "", "127.0.0.1:2"},
		{"demo --redis=redis://127.0.0.1:1", "", "127.0.0.1:1"},
	} {
		status, stdout, stderr := run(t.Context(), test.stdin, strings.Fields(test.args)...)
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		last := lines[len(lines)-1]
		if status != statusUsage || stdout != "" || !strings.Contains(last, test.want) {
			t.Errorf("luatx %s: status %d, prints %q and %q, want %q", test.args, status, stdout, stderr, test.want)
		}
		if len(lines) > 1 && test.stdin == "" {
			t.Errorf("luatx %s: %d lines of errors: %q", test.args, len(lines), stderr)
		}
	}
}

// A password does not get into a message.
func TestErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://me:sesame@127.0.0.1:1", "redis://me:sesame@127.0.0.1:1/x", "redis://me:sesame@[::1", "http://me:sesame@127.0.0.1:1"} {
		status, _, stderr := run(t.Context(), "", "demo", "--redis", url)
		if status != statusUsage || strings.Contains(stderr, "sesame") {
			t.Errorf("%s: status %d, %s", url, status, stderr)
		}
	}
}
