package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/internal/test/redistest"
)

// document is the part of openapi.json that the tests need.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]action
	Components struct {
		Responses map[string]response
		Schemas   map[string]schema
	}
}

type action struct {
	Access      string `json:"x-access"`
	OperationID string
	Parameters  []struct {
		Name, In string
		Required bool
	}
	RequestBody *struct {
		Content map[string]struct{ Schema schema }
	}
	Responses map[string]response
}

type response struct {
	Ref         string `json:"$ref"`
	Description string
	Content     map[string]struct{ Schema schema }
}

// schema is the part of JSON Schema that openapi.json uses.
type schema struct {
	Ref         string `json:"$ref"`
	Description string
	Type        string
	Format      string
	Enum        []string
	Items       *schema
	Properties  map[string]schema
	Required    []string
	Additional  any `json:"additionalProperties"`
	OneOf       []schema
}

// described reads openapi.json, which must contain nothing that this test does not know.
func described(t testing.TB) document {
	t.Helper()
	var doc document
	decoder := json.NewDecoder(strings.NewReader(string(httpapi.OpenAPI())))
	redistest.Must(t, decoder.Decode(&doc))
	if doc.OpenAPI != "3.1.0" || len(doc.Paths) == 0 {
		t.Fatalf("the OpenAPI version is %q, with %d paths", doc.OpenAPI, len(doc.Paths))
	}
	return doc
}

// resolve follows references.
func (d document) resolve(s schema) schema {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return d.resolve(d.Components.Schemas[name])
	}
	return s
}

func (d document) response(r response) response {
	if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
		return d.Components.Responses[name]
	}
	return r
}

// unfit returns where a value violates a schema.
func (d document) unfit(s schema, at string, value any) error {
	s = d.resolve(s)
	if len(s.OneOf) > 0 {
		fits := 0
		for _, one := range s.OneOf {
			if d.unfit(one, at, value) == nil {
				fits++
			}
		}
		if fits != 1 {
			return fmt.Errorf("%s matches %d alternatives of the schema, want 1: %v", at, fits, value)
		}
		return nil
	}
	wrong := fmt.Errorf("%s is not of type %q: %v", at, s.Type, value)
	switch s.Type {
	case "":
		return nil
	case "string":
		text, ok := value.(string)
		if !ok || len(s.Enum) > 0 && !slices.Contains(s.Enum, text) {
			return wrong
		}
		if s.Format == "date-time" {
			_, err := time.Parse(time.RFC3339Nano, text)
			return err
		}
	case "integer", "number":
		n, ok := value.(float64)
		if !ok || s.Type == "integer" && n != math.Trunc(n) {
			return wrong
		}
	case "boolean":
		if _, ok := value.(bool); !ok {
			return wrong
		}
	case "array":
		list, ok := value.([]any)
		if !ok {
			return wrong
		}
		for i, item := range list {
			if err := d.unfit(*s.Items, fmt.Sprintf("%s[%d]", at, i), item); err != nil {
				return err
			}
		}
	case "object":
		return d.unfitObject(s, at, value)
	default:
		return fmt.Errorf("%s: the schema has type %q", at, s.Type)
	}
	return nil
}

func (d document) unfitObject(s schema, at string, value any) error {
	object, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is not an object: %v", at, value)
	}
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			return fmt.Errorf("%s has no %q", at, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		of, ok := s.Properties[name]
		if !ok {
			switch more := s.Additional.(type) {
			case bool:
				if !more {
					return fmt.Errorf("%s has %q, which the schema does not describe", at, name)
				}
			case map[string]any:
				text, _ := json.Marshal(more) // decoded JSON can be encoded
				if err := json.Unmarshal(text, &of); err != nil {
					return err
				}
			}
		}
		if err := d.unfit(of, at+"."+name, object[name]); err != nil {
			return err
		}
	}
	return nil
}

func TestValidatorReportsValuesThatViolateTheSchema(t *testing.T) {
	t.Parallel()
	d := document{}
	d.Components.Schemas = map[string]schema{"Reason": {
		Type: "object", Properties: map[string]schema{"class": {Type: "string", Enum: []string{"a", "b"}}, "at": {Type: "string", Format: "date-time"}, "n": {Type: "integer"}},
		Required: []string{"class"}, Additional: false,
	}}
	list := schema{Type: "array", Items: &schema{Ref: "#/components/schemas/Reason"}}
	for text, fits := range map[string]bool{
		`[]`: true, `[{"class":"a"}]`: true, `[{"class":"a","n":3,"at":"2024-01-02T03:04:05Z"}]`: true,
		`{}`: false, `[{}]`: false, `[{"class":"c"}]`: false, `[{"class":"a","n":1.5}]`: false, `[{"class":"a","x":1}]`: false,
		`[{"class":"a","at":"now"}]`: false, `[{"class":null}]`: false, `null`: false,
	} {
		var value any
		redistest.Must(t, json.Unmarshal([]byte(text), &value))
		if err := d.unfit(list, "list", value); (err == nil) != fits {
			t.Errorf("%s: %v", text, err)
		}
	}
	numbers := schema{Type: "object", Additional: map[string]any{"type": "integer"}}
	if d.unfit(numbers, "counts", map[string]any{"a": 1.0}) != nil || d.unfit(numbers, "counts", map[string]any{"a": "1"}) == nil {
		t.Error("the validator ignores additional properties")
	}
}
