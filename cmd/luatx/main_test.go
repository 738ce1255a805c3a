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

	"github.com/redis/go-redis/v9/logging"

	"github.com/luatx/luatx/cmd/luatx/internal/shop"
	"github.com/luatx/luatx/internal/test/redistest"
)

// asMain makes the test program run main, for tests that send signals to a process.
const asMain = "LUATX_TEST_AS_MAIN"

// TestMain is also the worker, because the demo starts its own program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerCommand || os.Getenv(asMain) != "" {
		main()
		return
	}
	logging.Disable()
	redistest.Main(m)
}

// run runs a command in this process.
func run(ctx context.Context, stdin string, args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = command(ctx, args, standard{strings.NewReader(stdin), &out, &err})
	return status, out.String(), err.String()
}

// someOrders returns the first n built-in orders.
func someOrders(n int) []shop.Order { return shop.BuiltIn(7)[:n] }

// ordersFile writes orders as JSON lines of CloudEvents.
func ordersFile(t *testing.T, orders []shop.Order) string {
	t.Helper()
	var text bytes.Buffer
	for _, order := range orders {
		msg, err := order.ToMessage()
		redistest.Must(t, err)
		line, err := msg.MarshalJSON()
		redistest.Must(t, err)
		text.Write(append(line, '\n'))
	}
	name := filepath.Join(t.TempDir(), "orders.jsonl")
	redistest.Must(t, os.WriteFile(name, text.Bytes(), 0o600))
	return name
}

// has checks that a text contains others.
func has(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
}

// demo runs the demo, which must succeed and print one JSON object without unknown fields.
func demo(t *testing.T, args ...string) (report shop.Report, stderr string) {
	t.Helper()
	status, stdout, stderr := run(t.Context(), "", append([]string{"demo", "--json"}, args...)...)
	if status != statusFine {
		t.Fatalf("status %d: %s", status, stderr)
	}
	decoder := json.NewDecoder(strings.NewReader(stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if rest, err := io.ReadAll(decoder.Buffered()); err != nil || len(bytes.TrimSpace(rest)) > 0 {
		t.Fatalf("more than one object: %s, %v", stdout, err)
	}
	return report, stderr
}

// wantExact checks a scripted run against the orders, and that workers were killed during the run.
func wantExact(t *testing.T, result *shop.Result, orders []shop.Order, kills int) {
	t.Helper()
	wantFire(t, result, kills)
	if result.Messages != len(orders) || !shop.Expect(orders).Exact(*result) {
		t.Errorf("the scripted mode's books are not exact: %+v", *result)
	}
}

func wantFire(t *testing.T, result *shop.Result, kills int) {
	t.Helper()
	if result == nil {
		t.Fatal("no result of a mode")
	}
	if result.Kills != kills {
		t.Errorf("%d workers were killed, want %d", result.Kills, kills)
	}
	if result.PerSecond <= 0 || result.P50Ms <= 0 || result.P99Ms < result.P50Ms {
		t.Errorf("the speed is %v a second, p50 %v ms, p99 %v ms", result.PerSecond, result.P50Ms, result.P99Ms)
	}
}

func TestCommandsPrintHelpAndVersion(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, stdout string }{
		{"", "luatx demo"},
		{"help", "luatx demo"},
		{"-h", "luatx demo"},
		{"--help", "luatx version"},
		{"version", "luatx "},
		{"--version", "go1."},
		{"demo -h", "-kill-every"},
		{"demo --help", "Pipeline mode"},
		{"bench -h", "-callers"},
		{"keys -h", "luatx keys rename"},
		{"keys help", "luatx keys compare"},
		{"help keys", "luatx keys compare"},
		{"help keys rename", "--pattern 'account:*'"},
		{"help stats", "-over"},
		{"keys rename -h", "--pattern 'account:*'"},
		{"keys rename -h", "-dry-run"},
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

func TestWrongUsageIsOneLineAndStatusTwo(t *testing.T) {
	t.Parallel()
	empty, addr := ordersFile(t, nil), redistest.Shared(t).Addr()
	there := " " + strings.Join(newSite(t, addr).begin(redistest.Shared(t).Client(t)).flags, " ")
	rename := "keys rename --redis 127.0.0.1:1 --pattern a:* --map a:{id} --keyspace own"
	from := "keys rename --redis 127.0.0.1:1 --pattern a:* --from partitions=16 --keyspace own"
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
		{"bench", "", "--redis is missing"},
		{"bench --redis localhost:1 --callers 1,0", "", "use numbers from 1 to 1000"},
		{"bench --redis localhost:1 --tags 0", "", "--tags is 0"},
		{"bench --redis localhost:1 --payload 0", "", "--payload is 0"},
		{"bench --redis localhost:1 --rounds 0", "", "--rounds is 0"},
		{"bench --redis localhost:1 --per 2m", "", "--per is 2m0s"},
		{"bench x", "", `unexpected argument "x"`},
		{"bench --nosuch", "", "flag provided but not defined: -nosuch"},
		{"bench --redis nowhere", "", `--redis: "nowhere" is not an address`},
		{"bench --redis 127.0.0.1:1", "", "--redis: the Redis at 127.0.0.1:1: dial tcp"},
		{"keys remove", "", `unknown command "keys remove": did you mean keys rename?`},
		{"stat", "", "did you mean stats?"},
		{"rearm 1", "", "did you mean parked rearm?"},
		{"parkde", "", "did you mean parked?"},
		{"help parked lsit", "", "did you mean parked list?"},
		{"help sell", "", `unknown command "sell"`},
		{"stats --namepsace n", "", "did you mean --namespace?"},
		{"keys rename", "", "is missing"},
		{"keys rename --pattern a:* --map a:{id} --keyspace own", "", "--redis is missing"},
		{rename, "", "--redis: "},
		{rename + " more", "", `unexpected argument "more"`},
		{rename + " --dry-run --yes", "", "are both set"},
		{rename + " --nonsense", "", "-h lists the flags"},
		{rename + " --map a", "", `--map "a": {id} is missing`},
		{rename + " --parts {x}", "", "--parts: {x} is not in the map"},
		{rename + " --keyspace 16", "", `--keyspace is "16"; use own`},
		{rename + " --keyspace partitions=0", "", "1 to 16384"},
		{rename + " --prefix a{b", "", "--prefix \"a{b\" has a brace"},
		{"keys rename --redis 127.0.0.1:1 --pattern a:* --keyspace own", "", "--map and --from are missing"},
		{rename + " --from own", "", "--map and --from are both set"},
		{rename + " --from-prefix a", "", "--from-prefix is set without --from"},
		{from, "", "--redis: "},
		{from + " --parts a", "", "--parts and --from are both set"},
		{from + " --from own", "", "--from and --keyspace are the same"},
		{from + " --from own --from-prefix a", "", "--redis: "},
		{from + " --from 16", "", `--from is "16"; use own`},
		{from + " --from-prefix a{b", "", "--from-prefix \"a{b\" has a brace"},
		{"stats --nonsense", "", "-h lists the flags"},
		{"stats now", "", `unexpected argument "now"`},
		{"stats --redis 127.0.0.1:1 --namespace n --keyspace own", "", "--redis: "},
		{"stats --redis " + addr, "", "--namespace and --keyspace"},
		{"stats --redis " + addr + " --namespace n --keyspace 16", "", "use own"},
		{"parked sell", "", `unknown command "parked sell"`},
		{"parked show" + there, "", "id is missing; give one or more"},
		{"parked import --as me" + there, "", "give exactly one file"},
		{"parked import /no/such/file --as me" + there, "", "/no/such/file"},
		{"inbox show" + there, "", "give exactly one id"},
		{"inbox show 1" + there, "", "--aggregate"},
		{"inbox show 1 --aggregate a" + there, "", "--source"},
		{"inbox forget 1 --as me" + there, "", "--reason"},
		{"inbox forget 1 --aggregate a --source /s --reason r --as me" + there, "", "--handler"},
		{"streams --redis " + addr, "", "stream is missing; give one or more"},
		{"parked list --slot x" + there, "", "use a number from 0 to 16383"},
		{"parked rearm --as me" + there, "", "--all"},
		{"tail --every 0" + there, "", "--every"},
		{"completion", "", "give exactly one bash|zsh|fish"},
		{"completion tcsh", "", "tcsh"},
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

func TestErrorsNeverShowThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://me:sesame@127.0.0.1:1", "redis://me:sesame@127.0.0.1:1/x", "redis://me:sesame@[::1", "http://me:sesame@127.0.0.1:1"} {
		status, _, stderr := run(t.Context(), "", "demo", "--redis", url)
		if status != statusUsage || strings.Contains(stderr, "sesame") {
			t.Errorf("%s: status %d, %s", url, status, stderr)
		}
	}
}
