package main

import (
	"crypto/tls"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/cmd/luatx/internal/shop"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestPipelineModeLosesWorkUnderFireAndScriptedModeDoesNot(t *testing.T) {
	t.Parallel()
	report, stderr := demo(t)
	orders := shop.BuiltIn(1)
	wantExact(t, report.Scripted, orders, 11)
	wantFire(t, report.Pipeline, 11)
	if report.Expected.Exact(*report.Pipeline) {
		t.Errorf("the pipeline mode's books are exact: %+v", *report.Pipeline)
	}
	if p := *report.Pipeline; p.Messages != len(orders) || p.Applied+p.Lost != p.Messages {
		t.Errorf("the pipeline mode's numbers do not add up: %+v", p)
	}
	if want := shop.Expect(orders); report.Expected.SpentSHA256 != want.SpentSHA256 || report.Expected.StockSHA256 != want.StockSHA256 {
		t.Errorf("expected is %+v", report.Expected)
	}
	has(t, stderr, "pipeline: 100%  300 of 300  11 kills\n", "scripted mode: workers killed: 11, ")
	lost := regexp.MustCompile(`scripted mode: workers killed: 11, replies lost on the way: (\d+)`).FindStringSubmatch(stderr)
	if lost == nil || lost[1] == "0" {
		t.Errorf("no replies were lost: %q", stderr)
	}
}

func TestDemoReadsStandardInputDropsBadLinesAndPrintsTable(t *testing.T) {
	t.Parallel()
	csv := `InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country
1,A,"HEART, WHITE",6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom
1,A,"HEART, WHITE",6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom
1,B,LANTERN,6,2010-12-01 08:26:00,3.395,17850.0,United Kingdom
2,a,LANTERN,x,2010-12-01 08:26:00,1,,United Kingdom
C3,A,"HEART, WHITE",-6,2010-12-01 08:26:00,2.55,,United Kingdom
`
	status, stdout, stderr := run(t.Context(), csv, "demo", "--orders", "-", "--mode", "scripted", "--kill-every", "0", "--rate", "50", "--work", "0")
	if status != statusFine || !strings.Contains(stdout, "scripted mode: books exact, 2 invoices applied once each.") {
		t.Errorf("status %d: %s\n%s", status, stdout, stderr)
	}
	if strings.Contains(stdout+stderr, "\x1b") || strings.Contains(stdout, "pipeline") {
		t.Errorf("printed %q and %q", stdout, stderr)
	}
	has(t, stderr, "standard input:4: ", "standard input:5: ", "lines dropped: 2\n")
}

func TestDemoChangesOnlyItsOwnKeysOnAServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Single(t, redistest.Own())
	client := srv.Client(t)
	for i := range 20 {
		redistest.Must(t, client.Set(t.Context(), "other:"+strconv.Itoa(i), i, 0).Err())
	}
	before := dump(t, client)
	orders := someOrders(100)
	report, _ := demo(t, "--redis", srv.Addr(), "--orders", ordersFile(t, orders), "--kill-every", "20", "--seed", "3")
	wantExact(t, report.Scripted, orders, 4)
	wantFire(t, report.Pipeline, 4)
	if diff := redistest.Diff(before, dump(t, client)); diff != "" {
		t.Errorf("the server's data differ:\n%s", diff)
	}
}

func dump(t *testing.T, client redis.UniversalClient, patterns ...string) redistest.State {
	t.Helper()
	state, err := redistest.Dump(t.Context(), client, patterns...)
	redistest.Must(t, err)
	return state
}

func TestKeptKeysHoldTheBooksUnderThePrintedNamespace(t *testing.T) {
	t.Parallel()
	srv := redistest.Single(t, redistest.Own())
	client := srv.Client(t)
	orders := someOrders(30)
	status, _, stderr := run(t.Context(), "", "demo", "--keep", "--redis", "redis://"+srv.Addr()+"/3", "--orders", ordersFile(t, orders), "--mode", "scripted", "--kill-every", "15")
	printed := regexp.MustCompile(`the keys (luatx-demo-\w+):\* stay`).FindStringSubmatch(stderr)
	if status != statusFine || printed == nil {
		t.Fatalf("status %d: %s", status, stderr)
	}
	if n := client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys in database 0", n)
	}
	chosen := srv.Client(t, func(o *redis.Options) { o.DB = 3 })
	keys, err := chosen.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("keys %q, %v", keys, err)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, printed[1]+":{") {
			t.Errorf("key %s is not under %s", key, printed[1])
		}
	}
	written, err := observer{client: chosen, keys: newLayout(printed[1])}.read(t.Context())
	redistest.Must(t, err)
	result, expected := shop.Result{Messages: len(orders)}, shop.Expect(orders)
	if expected.Compare(&result, written); !expected.Exact(result) {
		t.Errorf("the books that stayed: %+v", result)
	}
	redistest.Must(t, clean(t.Context(), chosen, printed[1]+":*"))
	if n := chosen.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys after they were taken away", n)
	}
}

func TestDemoOnClusterKeepsScriptedBooksExact(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	client := cluster.Client(t)
	orders := someOrders(100)
	report, _ := demo(t, "--redis", strings.Join(cluster.Addrs()[:2], ","), "--orders", ordersFile(t, orders), "--kill-every", "20")
	wantExact(t, report.Scripted, orders, 4)
	wantFire(t, report.Pipeline, 4)
	if left := dump(t, client, "luatx-demo-*"); len(left.Keys) > 0 {
		t.Errorf("keys stayed: %v", left.Keys)
	}
	status, _, stderr := run(t.Context(), "", "demo", "--redis", "redis://"+cluster.Addrs()[0]+"/1")
	if status != statusUsage || !strings.Contains(stderr, "database 1") {
		t.Errorf("a database of a cluster: status %d, %s", status, stderr)
	}
}

func TestLayoutSpreadsKeysOverAllMasters(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	keys := newLayout(newNamespace())
	var masters []string
	for _, slot := range keys.space.Slots() {
		node, err := cluster.NodeForSlot(t.Context(), slot)
		redistest.Must(t, err)
		masters = append(masters, node.Addr())
	}
	slices.Sort(masters)
	if n := len(slices.Compact(masters)); n != 3 {
		t.Errorf("the partitions lie on %d masters", n)
	}
}

func TestDemoWorksUnderFireOverTLSWithPassword(t *testing.T) {
	t.Parallel()
	web := httptest.NewUnstartedServer(nil) // for its certificate
	web.StartTLS()
	certificate := web.TLS.Certificates
	web.Close()
	srv := miniredis.NewMiniRedis()
	redistest.Must(t, srv.StartTLS(&tls.Config{Certificates: certificate, MinVersion: tls.VersionTLS12}))
	t.Cleanup(srv.Close)
	srv.RequireUserAuth("me", "sesame")
	orders := someOrders(40)
	url := "rediss://me:sesame@" + srv.Addr()
	report, _ := demo(t, "--mode", "scripted", "--orders", ordersFile(t, orders), "--kill-every", "10", "--redis", url+"?skip_verify=true")
	wantExact(t, report.Scripted, orders, 3)
	if keys := srv.DB(0).Keys(); len(keys) > 0 {
		t.Errorf("keys stayed: %q", keys)
	}
	status, _, stderr := run(t.Context(), "", "demo", "--redis", url)
	if status != statusUsage || !strings.Contains(stderr, "certificate") {
		t.Errorf("a certificate of nobody: status %d, %s", status, stderr)
	}
}

func TestDemoReportsServerThatRejectsWrites(t *testing.T) {
	t.Parallel()
	_, replica := redistest.WithReplica(t)
	status, _, stderr := run(t.Context(), "", "demo", "--redis", replica.Addr())
	if status != statusUsage || !strings.Contains(stderr, "READONLY") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d: %s", status, stderr)
	}
}

func TestDemoKeepsScriptedBooksOfRealOrdersExactEverywhere(t *testing.T) {
	name := os.Getenv("LUATX_ORDERS")
	if name == "" || os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("LUATX_ORDERS does not name a file of orders, or LUATX_VERIFY is not set")
	}
	orders, _, err := shop.ReadFile(name, nil)
	redistest.Must(t, err)
	kills := (len(orders) - 1) / 25
	for where, addr := range map[string]string{
		"embedded": "",
		"server":   redistest.Single(t, redistest.Own()).Addr(),
		"Cluster":  redistest.Cluster(t).Addrs()[0],
	} {
		t.Run(where, func(t *testing.T) { // not parallel, because each needs the whole machine
			start := time.Now()
			report, _ := demo(t, "--orders", name, "--redis", addr)
			wantExact(t, report.Scripted, orders, kills)
			wantFire(t, report.Pipeline, kills)
			t.Logf("%s: %+v, %+v", time.Since(start).Round(time.Second), report.Scripted, report.Pipeline)
		})
	}
}
