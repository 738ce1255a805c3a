package trigger

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fits validates a document against the schema, and returns the first violation.
func fits(t testing.TB, text []byte) string {
	t.Helper()
	var root map[string]any
	if err := json.Unmarshal([]byte(Schema()), &root); err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		return err.Error()
	}
	return checker{t, root}.check(root, doc, "")
}

// checker implements the keywords of JSON Schema that the schema uses, and fails the test at any other.
type checker struct {
	t    testing.TB
	root map[string]any
}

func (c checker) check(schema map[string]any, doc any, at string) string {
	for word, rule := range schema {
		if problem := c.word(word, rule, schema, doc, at); problem != "" {
			return at + ": " + problem
		}
	}
	return ""
}

func (c checker) word(word string, rule any, schema map[string]any, doc any, at string) string {
	text, isText := doc.(string)
	object, isObject := doc.(map[string]any)
	switch word {
	case "$schema", "$id", "$defs", "title":
	case "$ref":
		defs, _ := c.root["$defs"].(map[string]any)
		def, ok := defs[strings.TrimPrefix(rule.(string), "#/$defs/")].(map[string]any)
		if !ok {
			c.t.Fatalf("no definition of %v", rule)
		}
		return c.check(def, doc, at)
	case "oneOf":
		fit := 0
		var problems []string
		for _, branch := range rule.([]any) {
			if problem := c.check(branch.(map[string]any), doc, at); problem == "" {
				fit++
			} else {
				problems = append(problems, problem)
			}
		}
		if fit != 1 {
			return fmt.Sprintf("fits %d of oneOf %q", fit, problems)
		}
	case "type":
		if is := map[string]bool{"string": isText, "object": isObject, "null": doc == nil}; !is[rule.(string)] {
			return fmt.Sprintf("%v is no %v", doc, rule)
		}
	case "required":
		for _, name := range rule.([]any) {
			if _, ok := object[name.(string)]; isObject && !ok {
				return fmt.Sprintf("%v is missing", name)
			}
		}
	case "properties":
		for name, value := range object {
			if rule, ok := rule.(map[string]any)[name].(map[string]any); ok {
				if problem := c.check(rule, value, at+"/"+name); problem != "" {
					return problem
				}
			}
		}
	case "additionalProperties":
		known, _ := schema["properties"].(map[string]any)
		for name, value := range object {
			if _, ok := known[name]; ok {
				continue
			}
			more, allowed := rule.(map[string]any)
			if !allowed {
				return name + " is too much"
			}
			if problem := c.check(more, value, at+"/"+name); problem != "" {
				return problem
			}
		}
	default:
		return c.textWord(word, rule, text, isText)
	}
	return ""
}

func (c checker) textWord(word string, rule any, text string, isText bool) string {
	var ok bool
	switch word {
	case "pattern":
		ok = regexp.MustCompile(rule.(string)).MatchString(text)
	case "minLength":
		ok = len(text) >= int(rule.(float64))
	case "format":
		_, err := time.Parse(time.RFC3339Nano, text)
		ok = err == nil && rule == "date-time"
	case "contentEncoding":
		_, err := base64.StdEncoding.DecodeString(text)
		ok = err == nil && rule == "base64"
	default:
		known := []string{"pattern", "minLength", "format", "contentEncoding"}
		c.t.Fatalf("the schema says %q, of which this test knows nothing; it knows %q", word, slices.Sorted(slices.Values(known)))
	}
	if isText && !ok {
		return fmt.Sprintf("%q is not as %s says", text, word)
	}
	return ""
}
