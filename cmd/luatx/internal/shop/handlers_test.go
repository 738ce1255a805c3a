package shop

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// memory is both ports, in maps.
type memory struct {
	spent, stock, booked, sold map[string]int64
	err                        error
}

func newMemory() *memory {
	return &memory{spent: map[string]int64{}, stock: map[string]int64{}, booked: map[string]int64{}, sold: map[string]int64{}}
}

func (m *memory) written() Written {
	return Written{Spent: m.spent, Stock: m.stock, Applied: m.booked, Sold: m.sold}
}

func (m *memory) Book(_ context.Context, invoice, customer string, pence int64) error {
	if m.err != nil {
		return m.err
	}
	m.spent[customer] += pence
	m.booked[invoice]++
	return nil
}

func (m *memory) Take(_ context.Context, invoice, code string, units int64) error {
	if m.err != nil {
		return m.err
	}
	m.stock[code] += units
	m.sold[SoldKey(invoice, code)]++
	return nil
}

// feed turns an order into the message that a handler is given: encoded data.
func feed(t *testing.T, order Order) *message.Message {
	t.Helper()
	raw, err := order.ToMessage()
	redistest.Must(t, err)
	return message.New(raw.Data, raw.Attributes, nil)
}

func TestHandlersAndEncodedEventsKeepTheExpectedBooks(t *testing.T) {
	t.Parallel()
	m := newMemory()
	book := BookInvoice(m, HandlerConfig{Destination: func(code string) string { return "stock:" + code }})
	take := TakeStock(m, HandlerConfig{})
	orders := append(BuiltIn(1), smallOrders()...)
	for i := range smallOrders() { // they share numbers with nothing, but say so
		orders[len(orders)-1-i].Invoice = "small" + orders[len(orders)-1-i].Invoice
	}
	for _, order := range orders {
		events, err := book.Handle(t.Context(), feed(t, order))
		redistest.Must(t, err)
		if len(events) != len(order.Lines) {
			t.Fatalf("invoice %s: %d events for %d lines", order.Invoice, len(events), len(order.Lines))
		}
		for i, event := range events {
			checkSold(t, order, i, event)
			data, err := message.JSONMarshaler{}.Marshal(event.Data)
			redistest.Must(t, err)
			outs, err := take.Handle(t.Context(), message.New(data, event.Attributes, nil))
			if err != nil || len(outs) > 0 {
				t.Fatalf("%s: %v, %v", data, outs, err)
			}
		}
	}
	e := Expect(orders)
	result := Result{Messages: e.Messages}
	e.Compare(&result, m.written())
	if !e.Exact(result) {
		t.Errorf("the books are not exact: %+v", result)
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

func TestRouterChoosesHandlerAndAcknowledges(t *testing.T) {
	t.Parallel()
	m := newMemory()
	router := message.NewRouter(message.PipeConfig{})
	if err := errors.Join(
		router.AddHandler("book-invoice", nil, BookInvoice(m, HandlerConfig{})),
		router.AddHandler("take-stock", nil, TakeStock(m, HandlerConfig{})),
	); err != nil {
		t.Fatal(err)
	}
	orders, acked := smallOrders(), 0
	for _, order := range orders {
		in := feed(t, order)
		in.SetAcking(message.NewAcking(func() { acked++ }, func(err error) { t.Error(err) }))
		events, err := router.Process(t.Context(), in)
		redistest.Must(t, err)
		for _, event := range events {
			if _, err := router.Process(t.Context(), event); err != nil {
				t.Fatal(err)
			}
		}
	}
	e := Expect(orders)
	if acked != e.Messages || !reflect.DeepEqual(m.spent, e.Spent) || !reflect.DeepEqual(m.stock, e.Stock) {
		t.Errorf("%d acked, spent %v, stock %v", acked, m.spent, m.stock)
	}
}

func TestHandlersTypes(t *testing.T) {
	t.Parallel()
	if got := BookInvoice(newMemory(), HandlerConfig{}).EventType(); got != TypeInvoice {
		t.Errorf("BookInvoice takes %q", got)
	}
	if got := TakeStock(newMemory(), HandlerConfig{}).EventType(); got != TypeSold {
		t.Errorf("TakeStock takes %q", got)
	}
}

func TestHandlersPassErrorsOn(t *testing.T) {
	t.Parallel()
	sick := errors.New("sick")
	order := smallOrders()[0]
	sold := func() *message.Message { return message.New(LineSold{"1", "a", 1}, nil, nil) }

	m := newMemory()
	m.err = sick
	if outs, err := BookInvoice(m, HandlerConfig{}).Handle(t.Context(), feed(t, order)); !errors.Is(err, sick) || outs != nil {
		t.Errorf("a book that fails: %v, %v", outs, err)
	}
	if _, err := TakeStock(m, HandlerConfig{}).Handle(t.Context(), sold()); !errors.Is(err, sick) {
		t.Errorf("a stock that fails: %v", err)
	}

	m = newMemory()
	tired := HandlerConfig{Work: func(context.Context) error { return sick }}
	_, bookErr := BookInvoice(m, tired).Handle(t.Context(), feed(t, order))
	_, takeErr := TakeStock(m, tired).Handle(t.Context(), sold())
	if !errors.Is(bookErr, sick) || !errors.Is(takeErr, sick) || len(m.spent)+len(m.stock) > 0 {
		t.Errorf("work that fails: %v, %v, then written %v %v", bookErr, takeErr, m.spent, m.stock)
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
		if _, err := BookInvoice(m, HandlerConfig{}).Handle(t.Context(), message.New(data, nil, nil)); !message.IsPermanent(err) {
			t.Errorf("invoice of %s: %v", name, err)
		}
		if name == "half a penny" || name == "too much" {
			continue // no event has a price
		}
		if _, err := TakeStock(m, HandlerConfig{}).Handle(t.Context(), message.New(data, nil, nil)); !message.IsPermanent(err) {
			t.Errorf("event of %s: %v", name, err)
		}
	}
	if len(m.spent)+len(m.stock) > 0 {
		t.Errorf("written %v %v", m.spent, m.stock)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := Pause(2 * time.Millisecond)(t.Context()); err != nil || time.Since(start) != 2*time.Millisecond {
			t.Errorf("a pause of %s, %v", time.Since(start), err)
		}
		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Pause(time.Hour)(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("a pause that is ended took %s, %v", time.Since(start), err)
		}
		if err := Pause(0)(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("no pause after the end: %v", err)
		}
	})
}
