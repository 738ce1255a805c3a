// Package documented compares what the comments of a config struct promise with what the code does.
package documented

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Defaults checks the fields of a config struct, of a package whose tests run, against their comments: "Defaults to 100",
// "Defaults to 64 MiB" or, of two fields, "They default to 1 second and 5 minutes". A default that is no number, duration, size
// or quoted text is not compared.
func Defaults(t *testing.T, cfg any) {
	t.Helper()
	v := reflect.ValueOf(cfg)
	fields := fieldsOf(t, v.Type().Name())
	compared := 0
	for _, field := range fields {
		for i, want := range promised(field.Doc.Text()) {
			if i >= len(field.Names) {
				break
			}
			name := field.Names[i].Name
			if got := v.FieldByName(name); got.Kind() != reflect.Struct && got.Kind() != reflect.Func {
				compared++
				if printed(got) != want {
					t.Errorf("%T.%s defaults to %s, but its comment says %s", cfg, name, printed(got), want)
				}
			}
		}
	}
	if compared == 0 {
		t.Errorf("no field of %T has a documented default", cfg)
	}
}

// Bounds checks that validation holds a config's numbers and durations to their comments: "at least 100 ms" and "at most 1000" are
// allowed, and one less or more is refused with an error that names the field. A negative one is refused, unless the comment says
// what it means. Everything else of valid must be allowed.
func Bounds[C any](t *testing.T, valid C, validate func(C) error) {
	t.Helper()
	if err := validate(valid); err != nil {
		t.Errorf("%T: %v", valid, err)
	}
	for _, field := range fieldsOf(t, reflect.TypeFor[C]().Name()) {
		comment := strings.Join(strings.Fields(field.Doc.Text()), " ")
		for _, name := range field.Names {
			try := func(n int64, allowed bool) {
				t.Helper()
				cfg := valid
				set(reflect.ValueOf(&cfg).Elem().FieldByName(name.Name), n)
				switch err := validate(cfg); {
				case allowed && err != nil:
					t.Errorf("%T.%s of %d: %v", cfg, name.Name, n, err)
				case !allowed && (err == nil || !strings.Contains(err.Error(), name.Name)):
					t.Errorf("%T.%s of %d: %v", cfg, name.Name, n, err)
				}
			}
			if !isNumber(reflect.ValueOf(valid).FieldByName(name.Name)) {
				continue
			}
			if !strings.Contains(strings.ToLower(comment), "negative") {
				try(-1, false)
			}
			for _, found := range bound.FindAllStringSubmatch(comment, -1) {
				text, ok := parse(found[2])
				if !ok {
					continue
				}
				n, outside := number(text), int64(1)
				if found[1] == "least" {
					outside = -1
				}
				try(n, true)
				if n+outside != 0 { // 0 is the default
					try(n+outside, false)
				}
			}
		}
	}
}

func isNumber(v reflect.Value) bool { return v.CanInt() || v.CanFloat() }

func set(v reflect.Value, n int64) {
	if v.CanFloat() {
		v.SetFloat(float64(n))
		return
	}
	v.SetInt(n)
}

// number returns what printed shows, a duration in nanoseconds.
func number(text string) int64 {
	if d, err := time.ParseDuration(text); err == nil {
		return int64(d)
	}
	n, _ := strconv.ParseInt(text, 10, 64) // parse returns nothing else
	return n
}

// fieldsOf returns the fields of a struct in the working directory.
func fieldsOf(t *testing.T, name string) (fields []*ast.Field) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == name {
				if is, ok := spec.Type.(*ast.StructType); ok {
					fields = is.Fields.List
				}
			}
			return fields == nil
		})
	}
	return fields
}

var (
	sentence = regexp.MustCompile(`[Dd]efaults? to ("[^"]*"|[0-9][0-9,]*(?: [a-zA-Z]+)?)(?: and ([0-9][0-9,]*(?: [a-zA-Z]+)?))?([^.;:]*)`)
	bound    = regexp.MustCompile(`at (least|most) ([0-9][0-9,]*(?: [a-zA-Z]+)?)`)
	units    = map[string]time.Duration{
		"ms": time.Millisecond, "s": time.Second, "second": time.Second, "seconds": time.Second, "minute": time.Minute, "minutes": time.Minute,
		"hour": time.Hour, "hours": time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	}
	sizes = map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
)

// promised returns the defaults that a comment names, as printed does. One that depends on something ("for", "with") is left out.
func promised(comment string) (defaults []string) {
	found := sentence.FindStringSubmatch(strings.Join(strings.Fields(comment), " "))
	if found == nil || strings.HasPrefix(found[3], " ") {
		return nil
	}
	for _, text := range found[1:3] {
		if text == "" {
			continue
		}
		value, ok := parse(text)
		if !ok {
			return nil
		}
		defaults = append(defaults, value)
	}
	return defaults
}

func parse(text string) (string, bool) {
	if quoted, err := strconv.Unquote(text); err == nil {
		return quoted, true
	}
	digits, unit, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(strings.ReplaceAll(digits, ",", ""))
	switch {
	case err != nil:
		return "", false
	case units[unit] > 0:
		return (time.Duration(n) * units[unit]).String(), true
	case sizes[unit] > 0:
		return strconv.Itoa(n * sizes[unit]), true
	}
	return strconv.Itoa(n), unit == ""
}

// printed returns a field's value; that of a pointer is what it points to.
func printed(v reflect.Value) string {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return fmt.Sprint(v.Interface())
}
