package shop

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

func TestReadCSVParsesOrdersAndReportsProblems(t *testing.T) {
	t.Parallel()
	const when = "2010-12-01 08:26:00"
	line := func(invoice, stock, description, quantity, price, customer string) string {
		return strings.Join([]string{invoice, stock, description, quantity, when, price, customer, "France"}, ",")
	}
	tests := []struct {
		name     string
		lines    []string
		orders   []Order
		problems []string
	}{
		{
			name:   "one line",
			lines:  []string{line("536365", "85123A", "HEART", "6", "2.55", "17850.0")},
			orders: []Order{{"536365", "17850", []Line{{"85123A", 6, 255}}}},
		},
		{
			name: "equal lines, a cancellation, cases and guests",
			lines: []string{
				line("1", "85123A", "", "6", "2.55", "17850"),
				line("1", "85123A", "", "6", "2.55", "17850"),
				line("C2", "85123a", "", "-1", "2.5", ""),
				line("A3", "B", "Adjust bad debt", "1", "-11062.06", "0017850"),
			},
			orders: []Order{
				{"1", "17850", []Line{{"85123A", 6, 255}, {"85123A", 6, 255}}},
				{"C2", Guest, []Line{{"85123a", -1, 250}}},
				{"A3", "17850", []Line{{"B", 1, -1106206}}},
			},
		},
		{
			name: "lines of an invoice apart",
			lines: []string{
				line("1", "a", "", "1", "1", "5"), line("2", "b", "", "1", "1", "6"), line("1", "c", "", "1", "1", "5"),
			},
			orders: []Order{{"1", "5", []Line{{"a", 1, 100}, {"c", 1, 100}}}, {"2", "6", []Line{{"b", 1, 100}}}},
		},
		{
			name: "quotes",
			lines: []string{
				line("1", "a", `"TRAY, BREAKFAST"`, "1", "1", "5"),
				line("1", "b", `"FRAME 7"" SINGLE"`, "1", "1", "5"),
				line("1", "c", `FRAME 7" SINGLE`, "1", "1", "5"),
				line(`"1"`, `"d,e"`, "", `"2"`, `"1.50"`, `"5.0"`),
				line("1", "f", `"never closed`, "1", "1", "5"),
				line("1", "g", `"closed" late`, "1", "1", "5"),
				line("1", "h", "after them", "1", "1", "5"),
			},
			orders: []Order{{"1", "5", []Line{
				{"a", 1, 100}, {"b", 1, 100}, {"c", 1, 100}, {"d,e", 2, 150}, {"h", 1, 100},
			}}},
			problems: []string{"x:6: a quote is not closed", "x:7: text follows a closing quote"},
		},
		{
			name: "bad lines cost themselves only",
			lines: []string{
				line("1", "a", "", "1", "1.005", "5"),
				"1,a",
				line("1", "a", "", "1.5", "1", "5"),
				line("1", "a", "b,c", "1", "1", "5"),
				line("1", "a", "", "1", "", "5"),
				line("1", "", "", "1", "1", "5"),
				line(" ", "a", "", "1", "1", "5"),
				line("1", "a", "", "1", "1", "17850.5"),
				line("1", "a", "", "1", "1", "bob"),
				line("1", "a\t", "", "1", "1", "5"),
				line("1", "a\xff", "", "1", "1", "5"),
				line("1", strings.Repeat("a", 65), "", "1", "1", "5"),
				"",
				line("1", "ok", "caf\xe9", "1", "1", "5"),
				line("1", "a", "", "1", "1", "6"),
				line("1", "a", "", "1", "1", ""),
			},
			orders: []Order{{"1", "5", []Line{{"ok", 1, 100}}}},
			problems: []string{
				`x:2: price "1.005" has more than two decimals`,
				"x:3: has 2 fields, not 8",
				`x:4: quantity "1.5" is not a whole number`,
				"x:5: has 9 fields, not 8",
				`x:6: price "" is not an amount in pounds such as 2.55`,
				"x:7: stock code is missing",
				"x:8: invoice is missing",
				`x:9: customer "17850.5" is not a whole number`,
				`x:10: customer "bob" is not a whole number`,
				"x:11: stock code has a control character",
				"x:12: stock code is not valid UTF-8",
				"x:13: stock code is longer than 64 bytes",
				"x:16: invoice 1 is customer 5's, this line names 6",
				"x:17: invoice 1 is customer 5's, this line names guest",
			},
		},
		{name: "the header alone"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			text := csvHeader + "\n" + strings.Join(test.lines, "\n")
			checkRead(t, text, test.orders, test.problems)
			checkRead(t, "\xef\xbb\xbf"+strings.ReplaceAll(text, "\n", "\r\n")+"\r\n", test.orders, test.problems)
			checkRead(t, gzipped(t, text+"\n"), test.orders, test.problems)
		})
	}
}

func checkRead(t *testing.T, text string, orders []Order, problems []string) {
	t.Helper()
	gotOrders, gotProblems, err := Read("x", strings.NewReader(text))
	redistest.Must(t, err)
	if len(gotOrders)+len(orders) > 0 && !reflect.DeepEqual(gotOrders, orders) {
		t.Errorf("orders are\n%v, want\n%v", gotOrders, orders)
	}
	var texts []string
	for _, problem := range gotProblems {
		texts = append(texts, problem.String())
	}
	if !slices.Equal(texts, problems) {
		t.Errorf("problems are\n%q, want\n%q", texts, problems)
	}
}

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	redistest.Must(t, err, w.Close())
	return out.String()
}

func TestReadSkipsLongLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLineBytes+1)
	text := csvHeader + "\n" + long + "\n1,a,,1,,1,5,\n" + long
	checkRead(t, text, []Order{{"1", "5", []Line{{"a", 1, 100}}}}, []string{"x:2: is longer than 16 MiB", "x:4: is longer than 16 MiB"})
}

func TestReadDropsLinesWhoseTotalsCouldOverflow(t *testing.T) {
	t.Parallel()
	const most = 9 // lines of 10^18 pence each, in total below 2^63
	csv, events := csvHeader+"\n", ""
	for i := range most + 1 {
		csv += "1,a,,-1000000000,,10000000,5,\n"
		events += event(fmt.Sprintf(`{"invoice":%d,"customer":"5","lines":[{"stock":"a","quantity":-1000000000,"price":10000000}]}`, i)) + "\n"
	}
	for name, text := range map[string]string{"CSV": csv, "JSON lines": events} {
		orders, problems, err := Read("x", strings.NewReader(text))
		redistest.Must(t, err)
		if got := Expect(orders).Spent["5"]; got != -most*1e18 {
			t.Errorf("%s: the total is %d", name, got)
		}
		if len(problems) != 1 || !strings.Contains(problems[0].Text, "totals too large") {
			t.Errorf("%s: problems are %v", name, problems)
		}
	}
}

func TestReadRejectsInvalidFiles(t *testing.T) {
	t.Parallel()
	zipped := gzipped(t, csvHeader+strings.Repeat("\n1,a,,1,,1,5,", 10_000))
	for name, test := range map[string]struct{ text, want string }{
		"empty":          {"", "x:0: is empty"},
		"blank":          {"\n \n", "x:2: is empty"},
		"another header": {"a,b,c\n1,2,3\n", "x:1: is neither the header"},
		"binary":         {"\x7fELF\x00\x01", "x:1: is neither the header"},
		"broken gzip":    {"\x1f\x8bnot really", "x: gzip: invalid header"},
		"cut gzip":       {zipped[:len(zipped)/2], "unexpected EOF"},
		"one long line":  {strings.Repeat("x", maxLineBytes+1), "x:1: is longer than 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orders, _, err := Read("x", strings.NewReader(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
			if orders != nil {
				t.Errorf("%d orders besides the error", len(orders))
			}
		})
	}
}

func TestReadFileReadsPlainAndCompressedFiles(t *testing.T) {
	t.Parallel()
	if _, _, err := ReadFile(t.TempDir()+"/none.csv", nil); err == nil || !strings.Contains(err.Error(), "none.csv") {
		t.Errorf("a missing file: %v", err)
	}
	if _, _, err := ReadFile(t.TempDir(), nil); err == nil {
		t.Error("a directory is read")
	}
	orders, problems, err := ReadFile("-", strings.NewReader(csvHeader+"\n1,a,,1,,1,5,\nbad\n"))
	if err != nil || len(orders) != 1 || len(problems) != 1 || problems[0].File != "standard input" {
		t.Errorf("standard input: %v, %v, %v", orders, problems, err)
	}
}

// FuzzReadCSV checks that accepted input is valid, and that the readers agree on it, compressed or not.
func FuzzReadCSV(f *testing.F) {
	f.Add("1,a,,1,,1,5,")
	f.Add(`1,"a,b","7""",-1,,2.55,17850.0,UK` + "\n1,a,,1,,0.001,,")
	f.Add("C1,a,\"open,1,,1,5,\n1,a,,1,,1,5,\r\n\r\n")
	f.Fuzz(func(t *testing.T, body string) {
		text := csvHeader + "\n" + body
		orders, problems, err := Read("x", strings.NewReader(text))
		redistest.Must(t, err)
		checkOrders(t, orders)
		lines := 0
		for line := range strings.SplitSeq(body, "\n") {
			if strings.TrimSpace(strings.TrimSuffix(line, "\r")) != "" {
				lines++
			}
		}
		if got := Expect(orders).Events + len(problems); got != lines {
			t.Fatalf("%d lines became %d lines and problems", lines, got)
		}
		zipped, again, err := Read("x", strings.NewReader(gzipped(t, text)))
		if err != nil || !reflect.DeepEqual(zipped, orders) || !reflect.DeepEqual(again, problems) {
			t.Fatalf("zipped it reads as %v, %v, %v", zipped, again, err)
		}
	})
}

func checkOrders(t *testing.T, orders []Order) {
	t.Helper()
	seen := map[string]bool{}
	for _, order := range orders {
		if seen[order.Invoice] {
			t.Fatalf("invoice %q twice", order.Invoice)
		}
		seen[order.Invoice] = true
		names := []string{order.Invoice, order.Customer}
		for _, line := range order.Lines {
			names = append(names, line.Stock)
		}
		for _, name := range names {
			if err := checkName("name", name); err != nil {
				t.Fatalf("%q: %v", name, err)
			}
		}
		if len(order.Lines) == 0 {
			t.Fatalf("invoice %q has no lines", order.Invoice)
		}
	}
}

// FuzzSplitCSV checks that a record of encoding/csv has the same fields here.
func FuzzSplitCSV(f *testing.F) {
	for _, seed := range []string{"", "a,b", `"a,b",c`, `"7""",`, `,,`, `"`, `a"b`, `"a"b`, `""""`, `"",""`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if line == "" || strings.ContainsAny(line, "\r\n") {
			return
		}
		got, err := splitCSV(line)
		want, wantErr := csv.NewReader(strings.NewReader(line)).Read()
		if wantErr == nil && (err != nil || !slices.Equal(got, want)) {
			t.Fatalf("%q is split into %q, %v; want %q", line, got, err, want)
		}
		if err == nil && !strings.Contains(line, `"`) && len(got) != strings.Count(line, ",")+1 {
			t.Fatalf("%q is split into %q", line, got)
		}
	})
}
