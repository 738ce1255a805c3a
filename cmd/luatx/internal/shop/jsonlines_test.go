package shop

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// event returns data in a minimal CloudEvent.
func event(data string) string {
	return `{"specversion":"1.0","id":"e","source":"/test","type":"t","data":` + data + `}`
}

func TestReadJSONLinesParsesOrders(t *testing.T) {
	t.Parallel()
	lines := []string{
		event(`{"invoice":"1","customer":"17850","lines":[{"stock":"85123A","quantity":6,"price":2.55},{"stock":"85123A","quantity":6,"price":2.55}]}`),
		event(`{"invoice":2,"customer":17850.0,"lines":[{"stock":22041,"quantity":"-1","price":"2.5"}]}`),
		"",
		event(`{"invoice":"3","customer":null,"lines":[{"stock":"a","quantity":6.0,"price":0}],"more":[1]}`),
		event(`{"invoice":"4","lines":[{"stock":"a","quantity":0,"price":-1.10}]}`),
		event(`{"invoice":"5","customer":"Zoë","lines":[{"stock":"a","quantity":1,"price":1}]}`),
		event(`{"invoice":"6","customer":"","lines":[{"stock":"a","quantity":1,"price":0.29}]}`),
	}
	orders := []Order{
		{"1", "17850", []Line{{"85123A", 6, 255}, {"85123A", 6, 255}}},
		{"2", "17850", []Line{{"22041", -1, 250}}},
		{"3", Guest, []Line{{"a", 6, 0}}},
		{"4", Guest, []Line{{"a", 0, -110}}},
		{"5", "Zoë", []Line{{"a", 1, 100}}},
		{"6", Guest, []Line{{"a", 1, 29}}},
	}
	text := strings.Join(lines, "\n")
	checkRead(t, text, orders, nil)
	checkRead(t, "\xef\xbb\xbf\r\n"+strings.ReplaceAll(text, "\n", "\r\n"), orders, nil)
	checkRead(t, gzipped(t, text), orders, nil)
}

func TestReadJSONLinesReportsProblems(t *testing.T) {
	t.Parallel()
	order := func(line string) string { return event(`{"invoice":"1","customer":"5","lines":[` + line + `]}`) }
	for name, test := range map[string]struct{ line, want string }{
		"three decimals":    {order(`{"stock":"a","quantity":1,"price":1.005}`), `lines[0]: price "1.005" has more than two decimals`},
		"an exponent":       {order(`{"stock":"a","quantity":1,"price":1e1}`), `price "1e1" is not an amount`},
		"half a unit":       {order(`{"stock":"a","quantity":0.5,"price":1}`), `quantity "0.5" is not a whole number`},
		"no quantity":       {order(`{"stock":"a","price":1}`), `quantity "" is not a whole number`},
		"no price":          {order(`{"stock":"a","quantity":1}`), `price "" is not an amount`},
		"no stock":          {order(`{"quantity":1,"price":1}`), "stock code is missing"},
		"a stock object":    {order(`{"stock":{},"quantity":1,"price":1}`), "{} is neither text nor a number"},
		"a control":         {order(`{"stock":"a\u0001","quantity":1,"price":1}`), "stock code has a control character"},
		"second line bad":   {order(`{"stock":"a","quantity":1,"price":1},{}`), "lines[1]: stock code is missing"},
		"no lines":          {order(""), "lines: the order has none"},
		"half a customer":   {event(`{"invoice":"1","customer":17850.5,"lines":[{"stock":"a","quantity":1,"price":1}]}`), "is not a whole number"},
		"no invoice":        {event(`{"lines":[{"stock":"a","quantity":1,"price":1}]}`), "invoice is missing"},
		"data of a number":  {event(`7`), "data: "},
		"null":              {event(`null`), "data"},
		"no data":           {`{"specversion":"1.0","id":"e","source":"/test","type":"t"}`, "the event has no data"},
		"no JSON":           {"{", "unexpected end"},
		"an array":          {"[]", ""},
		"a CSV line":        {"1,a,,1,,1,5,", ""},
		"too large totals":  {order(strings.Repeat(`{"stock":"a","quantity":1000000000,"price":10000000},`, 9) + `{"stock":"a","quantity":1000000000,"price":10000000}`), "totals too large"},
		"not UTF-8":         {order("{\"stock\":\"a\xff\",\"quantity\":1,\"price\":1}"), "is not valid UTF-8"},
		"the invoice again": {event(`{"invoice":"0","customer":"9","lines":[{"stock":"b","quantity":7,"price":7}]}`), "invoice 0 occurs twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := event(`{"invoice":"0","customer":"5","lines":[{"stock":"a","quantity":1,"price":1}]}`)
			last := event(`{"invoice":"z","customer":"5","lines":[{"stock":"a","quantity":1,"price":1}]}`)
			orders, problems, err := Read("x", strings.NewReader(first+"\n"+test.line+"\n"+last))
			redistest.Must(t, err)
			if len(orders) != 2 || orders[0].Invoice != "0" || orders[1].Invoice != "z" {
				t.Errorf("orders are %v", orders)
			}
			if len(problems) != 1 || problems[0].Line != 2 || !strings.Contains(problems[0].Text, test.want) {
				t.Errorf("problems are %v, want %q on line 2", problems, test.want)
			}
		})
	}
}

func TestMessageIsDecodedUnchanged(t *testing.T) {
	t.Parallel()
	for _, order := range BuiltIn(3) {
		raw, err := order.ToMessage()
		redistest.Must(t, err)
		if raw.ID() != order.Invoice || raw.Source() != EventSource || raw.Subject() != order.Customer || raw.Type() != TypeInvoice {
			t.Fatalf("attributes are %v", raw.Attributes)
		}
		text, err := json.Marshal(raw)
		redistest.Must(t, err)
		var read message.RawMessage
		redistest.Must(t, json.Unmarshal(text, &read))
		got, err := FromMessage(&read)
		if err != nil || !reflect.DeepEqual(got, order) {
			t.Fatalf("%s came back as %v, %v; want %v", text, got, err, order)
		}
	}
}

// FuzzReadJSONLines checks that accepted input can be written as the shop's own messages and read again.
func FuzzReadJSONLines(f *testing.F) {
	f.Add([]byte(event(`{"invoice":"1","customer":17850.0,"lines":[{"stock":"a","quantity":-6,"price":2.55}]}`)))
	f.Add([]byte(event(`{"invoice":1,"lines":[{"stock":"<&>\u2028","quantity":"6.0","price":"0.1"}]}`) + "\n{}\n\n{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		orders, problems, err := Read("x", bytes.NewReader(append([]byte("{}\n"), text...)))
		redistest.Must(t, err)
		if len(problems) == 0 || problems[0].Line != 1 {
			t.Fatalf("the empty object passed: %v", problems)
		}
		checkOrders(t, orders)
		var own bytes.Buffer
		encoder := json.NewEncoder(&own)
		for _, order := range orders {
			raw, err := order.ToMessage()
			redistest.Must(t, err)
			redistest.Must(t, encoder.Encode(raw))
		}
		if len(orders) == 0 {
			return
		}
		again, problems, err := Read("x", &own)
		if err != nil || len(problems) > 0 || !reflect.DeepEqual(again, orders) {
			t.Fatalf("%v came back as %v, %v, %v", orders, again, problems, err)
		}
	})
}
