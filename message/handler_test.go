package message_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
)

type (
	OrderPlaced     struct{ ID string }
	HTTPCallFailed  struct{}
	OrderV2         struct{}
	Envelope[T any] struct{ Item T }
	shopEvent       interface{ shop() }
	shipped         struct{ Stock string }
	refunded        struct{}
)

func (shipped) shop()  {}
func (refunded) shop() {}

func TestNamingDerivesEventTypesFromGoTypes(t *testing.T) {
	t.Parallel()
	for want, typ := range map[string]reflect.Type{
		"order.placed":     reflect.TypeFor[OrderPlaced](),
		"http.call.failed": reflect.TypeFor[**HTTPCallFailed](),
		"order.v2":         reflect.TypeFor[OrderV2](),
		"envelope":         reflect.TypeFor[Envelope[OrderPlaced]](),
		"shop.event":       reflect.TypeFor[shopEvent](),
	} {
		if got := message.DottedNaming(typ); got != want {
			t.Errorf("%v: got %q, want %q", typ, got, want)
		}
	}
	for _, typ := range []reflect.Type{
		nil, reflect.TypeFor[any](), reflect.TypeFor[error](), reflect.TypeFor[[]byte](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[string](),
	} {
		if got := message.DottedNaming(typ); got != "" {
			t.Errorf("%v: got %q, want none", typ, got)
		}
	}
	if got := message.KebabNaming(reflect.TypeFor[*OrderPlaced]()); got != "order-placed" {
		t.Error(got)
	}
	shop := message.Prefixed("shop.", message.DottedNaming)
	if got := shop(reflect.TypeFor[OrderPlaced]()) + shop(nil); got != "shop.order.placed" {
		t.Error(got)
	}
}

func TestEventTypeOfAHandlerFollowsItsNaming(t *testing.T) {
	t.Parallel()
	fn := func(context.Context, *message.TypedMessage[OrderPlaced]) ([]*message.Message, error) { return nil, nil }
	for want, h := range map[string]message.Handler{
		"order.placed": message.NewHandler(fn),
		"order-placed": message.NewHandler(fn, nil, message.KebabNaming),
		"fixed":        message.NewHandler(fn, message.Named("fixed")),
	} {
		if h.EventType() != want {
			t.Errorf("got %q, want %q", h.EventType(), want)
		}
		if _, ok := h.NewInput().(*OrderPlaced); !ok {
			t.Errorf("input is a %T", h.NewInput())
		}
	}
}

// received runs a handler of T on a message and returns the argument of its function.
func received[T any](t *testing.T, data any, contentType string) (T, error) {
	t.Helper()
	var got T
	h := message.NewHandler(func(_ context.Context, msg *message.TypedMessage[T]) ([]*message.Message, error) {
		got = msg.Data
		return nil, nil
	})
	_, err := h.Handle(t.Context(), message.New(data, message.Attributes{message.AttrDataContentType: contentType}, nil))
	return got, err
}

func TestHandlerDecodesDataIntoItsType(t *testing.T) {
	t.Parallel()
	want := OrderPlaced{"7"}
	for _, data := range []any{want, &want, []byte(`{"ID":"7"}`), json.RawMessage(`{"ID":"7"}`)} {
		if got, err := received[OrderPlaced](t, data, ""); err != nil || got != want {
			t.Errorf("%T: got %v, %v", data, got, err)
		}
	}
	for _, data := range []any{nil, []byte{}, (*OrderPlaced)(nil)} {
		if got, err := received[OrderPlaced](t, data, ""); err != nil || got != (OrderPlaced{}) {
			t.Errorf("%T: got %v, %v, want the zero value", data, got, err)
		}
	}
	if got, err := received[[]byte](t, json.RawMessage(`[`), "text/plain"); err != nil || string(got) != "[" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := received[json.RawMessage](t, []byte(`[]`), ""); err != nil || string(got) != "[]" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := received[any](t, 5, ""); err != nil || got != 5 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := received[shopEvent](t, shipped{"x"}, ""); err != nil || got != (shipped{"x"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range []struct {
		data        any
		contentType string
	}{{[]byte(`{`), ""}, {5, ""}, {[]byte(`{}`), "image/png"}} {
		if _, err := received[OrderPlaced](t, c.data, c.contentType); !errors.Is(err, message.ErrDecode) || !message.IsPermanent(err) {
			t.Errorf("%v: want a permanent ErrDecode, got %v", c.data, err)
		}
	}
}

func TestCommandHandlerReturnsEventsWithAttributesOfTheCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := message.NewCommandHandler(func(_ context.Context, cmd OrderPlaced) ([]shopEvent, error) {
			return []shopEvent{shipped{"s-" + cmd.ID}, refunded{}}, nil
		}, message.CommandHandlerConfig{
			Source: "/shop",
			Naming: message.Prefixed("shop.", message.DottedNaming),
			Attributes: func(cmd, event any) message.Attributes {
				if s, ok := event.(shipped); ok {
					return message.Attributes{"subject": s.Stock, "destination": cmd.(OrderPlaced).ID}
				}
				return nil
			},
		})
		if h.EventType() != "shop.order.placed" {
			t.Error(h.EventType())
		}
		at := time.Now().Add(-time.Hour)
		in := message.New(OrderPlaced{"1"}, message.Attributes{"id": "in", "correlationid": "c", "time": at}, nil)
		outs, err := h.Handle(t.Context(), in)
		if err != nil || len(outs) != 2 {
			t.Fatalf("%d outputs, %v", len(outs), err)
		}
		common := message.Attributes{
			"specversion": "1.0", "source": "/shop", "type": "shop.refunded", "time": at.UTC(),
			"datacontenttype": "application/json", "correlationid": "c",
		}
		if !reflect.DeepEqual(outs[1].Attributes, common) {
			t.Errorf("got %v, want %v", outs[1].Attributes, common)
		}
		common["type"], common["subject"], common["destination"] = "shop.shipped", "s-1", "1"
		if !reflect.DeepEqual(outs[0].Attributes, common) || outs[0].Data != (shipped{"s-1"}) {
			t.Errorf("got %v, want %v", outs[0].Attributes, common)
		}
		if outs[0].Ack() {
			t.Error("an output must not have the input's acking")
		}
	})
}

func TestCommandHandlerSetsDefaultSourceAndCorrelationID(t *testing.T) {
	t.Parallel()
	h := message.NewCommandHandler(func(context.Context, OrderPlaced) ([]shipped, error) {
		return []shipped{{}}, nil
	}, message.CommandHandlerConfig{CommandType: "place"})
	r := message.NewRouter(message.PipeConfig{})
	must(t, r.AddHandler("place-order", nil, h))
	outs, err := r.Process(t.Context(), message.New([]byte(`{"ID":"1"}`), message.Attributes{"id": "in", "type": "place"}, nil))
	if err != nil || len(outs) != 1 {
		t.Fatal(outs, err)
	}
	if got := fmt.Sprint(outs[0].Source(), outs[0].CorrelationID(), outs[0].ID()); got != "/place-orderin" {
		t.Errorf("source, correlation and id are %q", got)
	}
	outs, err = h.Handle(t.Context(), message.New(OrderPlaced{}, nil, nil))
	if err != nil || outs[0].Source() != "/place" || outs[0].CorrelationID() != "" || outs[0].Attributes["time"] != nil {
		t.Errorf("%v, %v", outs, err)
	}
}

func TestCommandHandlerRejectsUndecodableCommandsAndUntypedEvents(t *testing.T) {
	t.Parallel()
	failing := message.NewCommandHandler(func(context.Context, OrderPlaced) ([]shipped, error) {
		return []shipped{{}}, errBoom
	}, message.CommandHandlerConfig{})
	if outs, err := failing.Handle(t.Context(), message.New(OrderPlaced{}, nil, nil)); !errors.Is(err, errBoom) || outs != nil {
		t.Errorf("%v, %v", outs, err)
	}
	if _, err := failing.Handle(t.Context(), message.New(1, nil, nil)); !errors.Is(err, message.ErrDecode) {
		t.Error(err)
	}
	nameless := message.NewCommandHandler(func(context.Context, OrderPlaced) ([]any, error) {
		return []any{shipped{}, nil}, nil
	}, message.CommandHandlerConfig{})
	if _, err := nameless.Handle(t.Context(), message.New(OrderPlaced{}, nil, nil)); !message.IsPermanent(err) {
		t.Errorf("an event without a type: %v", err)
	}
	named := message.NewCommandHandler(func(context.Context, OrderPlaced) ([]string, error) {
		return []string{"a", "b"}, nil
	}, message.CommandHandlerConfig{Attributes: func(_, event any) message.Attributes {
		return message.Attributes{message.AttrType: "letter." + event.(string)}
	}})
	outs, err := named.Handle(t.Context(), message.New(OrderPlaced{}, nil, nil))
	types := []string{}
	for _, out := range outs {
		types = append(types, out.Type())
	}
	if err != nil || !slices.Equal(types, []string{"letter.a", "letter.b"}) {
		t.Errorf("%v, %v", types, err)
	}
}
