package shop

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// memory keeps the books in maps.
type memory struct {
	Written
	err error
}

func newMemory() *memory {
	return &memory{Written: Written{
		Spent: map[string]int64{}, Stock: map[string]int64{}, Applied: map[string]int64{}, Sold: map[string]int64{},
	}}
}

func (m *memory) Book(_ context.Context, invoice, customer string, pence int64) error {
	if m.err == nil {
		m.Spent[customer] += pence
		m.Applied[invoice]++
	}
	return m.err
}

func (m *memory) Take(_ context.Context, invoice, code string, units int64) error {
	if m.err == nil {
		m.Stock[code] += units
		m.Sold[SoldKey(invoice, code)]++
	}
	return m.err
}

func stockOf(code string) string { return "stock:" + code }

// feed converts an order to the message that a handler gets, with encoded data.
func feed(t *testing.T, order Order) *message.Message {
	t.Helper()
	raw, err := order.ToMessage()
	redistest.Must(t, err)
	return message.New(raw.Data, raw.Attributes, nil)
}

func TestRoutedHandlersAndEncodedEventsKeepTheExpectedBooks(t *testing.T) {
	t.Parallel()
	m, acked := newMemory(), 0
	router := message.NewRouter(message.PipeConfig{})
	redistest.Must(t, router.AddHandler("book-invoice", nil, BookInvoice(m, stockOf)), router.AddHandler("take-stock", nil, TakeStock(m)))
	orders := BuiltIn(1)
	for _, order := range smallOrders() {
		order.Invoice = "small" + order.Invoice // so that their numbers differ from all others
		orders = append(orders, order)
	}
	for _, order := range orders {
		in := feed(t, order)
		in.SetAcking(message.NewAcking(func() { acked++ }, func(err error) { t.Error(err) }))
		events, err := router.Process(t.Context(), in)
		redistest.Must(t, err)
		if len(events) != len(order.Lines) {
			t.Fatalf("invoice %s: %d events for %d lines", order.Invoice, len(events), len(order.Lines))
		}
		for i, event := range events {
			checkSold(t, order, i, event)
			data, err := message.JSONMarshaler{}.Marshal(event.Data)
			redistest.Must(t, err)
			outs, err := router.Process(t.Context(), message.New(data, event.Attributes, nil))
			if err != nil || len(outs) > 0 {
				t.Fatalf("%s: %v, %v", data, outs, err)
			}
		}
	}
	e := Expect(orders)
	result := Result{Messages: e.Messages}
	e.Compare(&result, m.Written)
	if !e.Exact(result) || acked != e.Messages {
		t.Errorf("the books are not exact, or %d acked are too few: %+v", acked, result)
	}
}

func checkSold(t *testing.T, order Order, i int, event *message.Message) {
	t.Helper()
	line := order.Lines[i]
	want := LineSold{Invoice: order.Invoice, Stock: line.Stock, Units: line.Units}
	if event.Data != any(want) {
		t.Fatalf("event %d is %v, want %v", i, event.Data, want)
	}
	if event.ID() != "" || event.Subject() != line.Stock || event.Destination() != "stock:"+line.Stock ||
		event.Type() != TypeSold || event.Source() != EventSource || event.CorrelationID() != order.Invoice {
		t.Fatalf("event %d has %v", i, event.Attributes)
	}
}

func TestHandlersPassErrorsOn(t *testing.T) {
	t.Parallel()
	m := &memory{err: errors.New("sick")}
	if outs, err := BookInvoice(m, stockOf).Handle(t.Context(), feed(t, smallOrders()[0])); !errors.Is(err, m.err) || outs != nil {
		t.Errorf("a book that fails: %v, %v", outs, err)
	}
	if _, err := TakeStock(m).Handle(t.Context(), message.New(LineSold{"1", "a", 1}, nil, nil)); !errors.Is(err, m.err) {
		t.Errorf("a stock that fails: %v", err)
	}
}

func TestBadDataIsAPermanentErrorAndWritesNothing(t *testing.T) {
	t.Parallel()
	m := newMemory()
	for name, data := range map[string]any{
		"nothing": nil, "empty": []byte{}, "null": []byte("null"), "no JSON": []byte("{"), "an empty object": []byte("{}"),
		"too much":     []byte(`{"invoice":"1","lines":[` + strings.Repeat(`{"stock":"a","quantity":1000000000,"price":10000000},`, 9) + `{"stock":"a","quantity":1000000000,"price":10000000}]}`),
		"half a penny": []byte(`{"invoice":"1","lines":[{"stock":"a","quantity":1,"price":1.005}]}`),
	} {
		if _, err := BookInvoice(m, stockOf).Handle(t.Context(), message.New(data, nil, nil)); !message.IsPermanent(err) {
			t.Errorf("invoice of %s: %v", name, err)
		}
		if name == "half a penny" || name == "too much" {
			continue // events have no price
		}
		if _, err := TakeStock(m).Handle(t.Context(), message.New(data, nil, nil)); !message.IsPermanent(err) {
			t.Errorf("event of %s: %v", name, err)
		}
	}
	if len(m.Spent)+len(m.Stock) > 0 {
		t.Errorf("written %v %v", m.Spent, m.Stock)
	}
}
