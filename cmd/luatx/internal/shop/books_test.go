package shop

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

func smallOrders() []Order {
	return []Order{
		{"1", "17850", []Line{{"85123A", 6, 255}, {"85123A", 6, 255}, {"85123a", 1, 100}}},
		{"2", Guest, []Line{{"B", 1, -1106206}}},
		{"C1", "17850", []Line{{"85123A", -12, 255}, {"85123a", -1, 100}}},
		{"3", "9", []Line{{"85123a", 2, 0}}},
	}
}

// TestExpectedBooksMatchDigestsWrittenByHand uses sha256sum.
func TestExpectedBooksMatchDigestsWrittenByHand(t *testing.T) {
	t.Parallel()
	want := Expected{
		Messages: 4, Events: 7,
		Spent:       map[string]int64{"17850": 0, "9": 0, Guest: -1106206},
		Stock:       map[string]int64{"85123A": 0, "85123a": 2, "B": 1},
		SpentSHA256: "b86273d8c27b50bb40351021cc3ba3b25df9252510d8c838e135059208aa1f1b",
		StockSHA256: "eb3718edcc4976e6190b9f4dbac72c94bc882e06eee3ef8b22ab8ac4a865b58d",
		lines: map[string]map[string]int64{
			"1": {"1\t85123A": 2, "1\t85123a": 1}, "2": {"2\tB": 1}, "3": {"3\t85123a": 1}, "C1": {"C1\t85123A": 1, "C1\t85123a": 1},
		},
	}
	if e := Expect(smallOrders()); !reflect.DeepEqual(e, want) {
		t.Errorf("expected is %+v, want %+v", e, want)
	}
	if got := Digest(nil); got != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("the digest of nothing is %s", got)
	}
}

func TestOffSumsTheAbsoluteDifferences(t *testing.T) {
	t.Parallel()
	type books = map[string]int64
	for _, test := range []struct {
		want, got books
		off       int64
	}{
		{nil, nil, 0},
		{books{"a": 1, "b": -2}, books{"a": 1, "b": -2}, 0},
		{books{"a": 1}, books{"a": 4}, 3},
		{books{"a": 4}, books{"a": 1}, 3},
		{books{"a": 5, "b": 5}, books{"a": 8, "b": 2}, 6}, // the differences do not cancel out
		{books{"a": -5}, books{}, 5},
		{books{}, books{"a": -5}, 5},
		{books{"a": 0}, books{}, 0},
	} {
		if off := Off(test.want, test.got); off != test.off {
			t.Errorf("Off(%v, %v) = %d, want %d", test.want, test.got, off, test.off)
		}
	}
}

// exactBooks returns the books after a run without a fault.
func exactBooks(e Expected) Written {
	w := Written{Spent: maps.Clone(e.Spent), Stock: maps.Clone(e.Stock), Applied: map[string]int64{}, Sold: map[string]int64{}}
	for invoice, lines := range e.lines {
		w.Applied[invoice] = 1
		maps.Copy(w.Sold, lines)
	}
	return w
}

func TestCompareFindsWrongBooks(t *testing.T) {
	t.Parallel()
	e := Expect(smallOrders())
	exact := Result{Messages: 4, Applied: 4, SpentSHA256: e.SpentSHA256, StockSHA256: e.StockSHA256}
	for name, test := range map[string]struct {
		spoil func(Written)
		want  func(*Result) // apart from the digests
	}{
		"nothing":        {func(Written) {}, func(*Result) {}},
		"a lost invoice": {func(w Written) { delete(w.Applied, "3") }, func(r *Result) { r.Applied, r.Lost = 3, 1 }},
		"its events do not count": {
			func(w Written) { delete(w.Applied, "1"); delete(w.Sold, SoldKey("1", "85123A")) },
			func(r *Result) { r.Applied, r.Lost = 3, 1 },
		},
		"applied twice":        {func(w Written) { w.Applied["2"] = 2 }, func(r *Result) { r.Doubled = 1 }},
		"applied three times":  {func(w Written) { w.Applied["2"] = 3 }, func(r *Result) { r.Doubled = 1 }},
		"one of equal lines":   {func(w Written) { w.Sold[SoldKey("1", "85123A")] = 1 }, func(r *Result) { r.EventsLost = 1 }},
		"all of an invoice":    {func(w Written) { clear(w.Sold) }, func(r *Result) { r.EventsLost = 7 }},
		"too many events":      {func(w Written) { w.Sold[SoldKey("3", "85123a")] = 9 }, func(*Result) {}},
		"money":                {func(w Written) { w.Spent["17850"]++ }, func(r *Result) { r.MoneyOffPence = 1 }},
		"stock":                {func(w Written) { w.Stock["B"] -= 2 }, func(r *Result) { r.StockOff = 2 }},
		"a customer of no sum": {func(w Written) { delete(w.Spent, "9") }, func(*Result) {}}, // only the digest shows it
	} {
		w, want := exactBooks(e), exact
		test.spoil(w)
		test.want(&want)
		got := Result{Messages: 4, Lost: 99, Doubled: 99, EventsLost: 99}
		e.Compare(&got, w)
		want.SpentSHA256, want.StockSHA256 = Digest(w.Spent), Digest(w.Stock)
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func exactResult(e Expected) Result {
	r := Result{Messages: e.Messages}
	e.Compare(&r, exactBooks(e))
	return r
}

func TestBooksAreExactOnlyWithoutDifferences(t *testing.T) {
	t.Parallel()
	e := Expect(smallOrders())
	if r := exactResult(e); !e.Exact(r) {
		t.Fatalf("exact books are not: %+v", r)
	}
	for name, spoil := range map[string]func(*Result){
		"messages":     func(r *Result) { r.Messages-- },
		"applied":      func(r *Result) { r.Applied-- },
		"lost":         func(r *Result) { r.Lost++ },
		"doubled":      func(r *Result) { r.Doubled++ },
		"events lost":  func(r *Result) { r.EventsLost++ },
		"money":        func(r *Result) { r.MoneyOffPence++ },
		"stock":        func(r *Result) { r.StockOff++ },
		"spent digest": func(r *Result) { r.SpentSHA256 = Digest(nil) },
		"stock digest": func(r *Result) { r.StockSHA256 = Digest(nil) },
	} {
		r := exactResult(e)
		spoil(&r)
		if e.Exact(r) {
			t.Errorf("%s: passes for exact: %+v", name, r)
		}
	}
}

func TestBuiltInOrdersDependOnTheSeedOnly(t *testing.T) {
	t.Parallel()
	orders := BuiltIn(1)
	if !reflect.DeepEqual(orders, BuiltIn(1)) {
		t.Error("the same seed makes other orders")
	}
	if reflect.DeepEqual(orders, BuiltIn(2)) {
		t.Error("another seed makes the same orders")
	}
	for seed := range uint64(20) {
		orders := BuiltIn(seed)
		checkOrders(t, orders)
		var guests, cancellations, equal int
		for _, order := range orders {
			if order.Customer == Guest {
				guests++
			}
			if order.Invoice[0] == 'C' {
				cancellations++
			}
			for i, line := range order.Lines {
				if slices.Contains(order.Lines[:i], line) {
					equal++
				}
			}
			if n := len(order.Lines); n < 1 || n > 8 {
				t.Errorf("seed %d: invoice %s has %d lines", seed, order.Invoice, n)
			}
		}
		e := Expect(orders)
		if len(orders) != 300 || len(e.Stock) != 60 || len(e.Spent) < 35 || len(e.Spent) > 41 ||
			guests < 20 || cancellations < 3 || equal < 10 {
			t.Errorf("seed %d: %d orders, %d products, %d customers, %d guests, %d cancellations, %d equal lines",
				seed, len(orders), len(e.Stock), len(e.Spent), guests, cancellations, equal)
		}
	}
}

func TestKillsDependOnTheSeedOnly(t *testing.T) {
	t.Parallel()
	kills := Kills(1, 100, 25, 4)
	if !slices.Equal(kills, Kills(1, 100, 25, 4)) {
		t.Error("the same seed plans other kills")
	}
	if len(kills) != 3 {
		t.Fatalf("kills are %v, want three", kills)
	}
	for i, kill := range kills {
		if kill.After != 25*(i+1) || kill.Worker < 0 || kill.Worker > 3 {
			t.Errorf("kill %d is %+v", i, kill)
		}
	}
	for _, none := range [][]Kill{Kills(1, 100, 0, 4), Kills(1, 100, 25, 0), Kills(1, 25, 25, 4), Kills(1, 0, 25, 4)} {
		if len(none) > 0 {
			t.Errorf("kills are %v, want none", none)
		}
	}
}

// TestExpectedBooksOfRealOrdersMatchAnotherProgram uses December 2010 of the Online Retail data set, if the file is available.
// Another program computed the numbers.
func TestExpectedBooksOfRealOrdersMatchAnotherProgram(t *testing.T) {
	t.Parallel()
	name := os.Getenv("LUATX_ORDERS")
	if name == "" {
		t.Skip("LUATX_ORDERS does not name a file of orders")
	}
	orders, problems, err := ReadFile(name, nil)
	redistest.Must(t, err)
	if len(problems) > 0 {
		t.Errorf("%d problems, the first: %s", len(problems), problems[0])
	}
	e := Expect(orders)
	longest := 0
	for _, order := range orders {
		longest = max(longest, len(order.Lines))
	}
	if e.Messages != 2025 || e.Events != 42_481 || len(e.Spent) != 949 || len(e.Stock) != 2822 || longest != 675 {
		t.Errorf("%d messages, %d events, %d customers, %d products, %d lines in the longest",
			e.Messages, e.Events, len(e.Spent), len(e.Stock), longest)
	}
	if e.SpentSHA256 != "24b85ccb21e8dbdc4e0f73cc5fe3568ad235137a8ec3cd71c65c9e68aac424bb" ||
		e.StockSHA256 != "aaf1ed5ffd0e020bf7bd80c75a0d856f59ae5b85102612eeb81ea3fb25ef37a4" {
		t.Errorf("digests are %s and %s", e.SpentSHA256, e.StockSHA256)
	}
}
