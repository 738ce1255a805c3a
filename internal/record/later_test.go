package record

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"
)

var errRecorded = errors.New("recorded")

// keeper keeps all commands and returns an error for each.
type keeper struct{}

func (keeper) Record(redis.Cmder) (bool, error) { return true, errRecorded }
func (keeper) Exec() error                      { return nil }

// TestCommandsOfALaterGoRedisAreRecorded uses a Recorder without generated methods.
func TestCommandsOfALaterGoRedisAreRecorded(t *testing.T) {
	t.Parallel()
	source, later := NewSource(), NewSource()
	if !source.complete {
		t.Fatal("recorder_gen.go is of another go-redis: run `go generate ./internal/record`")
	}
	later.complete = false
	recorded := 0
	for m := range reflect.TypeFor[redis.StatefulCmdable]().Methods() {
		if m.Type.NumOut() != 1 || !m.Type.Out(0).Implements(reflect.TypeFor[redis.Cmder]()) {
			continue
		}
		var fast, slow Recorder
		source.Init(&fast, keeper{})
		later.Init(&slow, keeper{})
		got, want := call(&fast, m, &fast), call(slow.StatefulCmdable, m, &slow)
		if got != want {
			t.Errorf("%s: %s; want %s", m.Name, got, want)
		}
		recorded += fast.Len()
	}
	if recorded < 550 {
		t.Errorf("%d commands were recorded", recorded)
	}
}

// call calls a method with sample arguments, and returns its result and the recorded commands as text.
func call(on any, m reflect.Method, r *Recorder) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint("panic: ", v) // an argument that go-redis does not check
		}
	}()
	arguments := []reflect.Value{reflect.ValueOf(context.Background())}
	for i := 1; i < m.Type.NumIn(); i++ {
		arguments = append(arguments, some(m.Type.In(i)))
	}
	method := reflect.ValueOf(on).MethodByName(m.Name)
	var out []reflect.Value
	if m.Type.IsVariadic() {
		out = method.CallSlice(arguments)
	} else {
		out = method.Call(arguments)
	}
	cmd, _ := reflect.TypeAssert[redis.Cmder](out[0])
	text = fmt.Sprintf("%T, %#v, error %v, recorded:", cmd, cmd.Args(), cmd.Err())
	for _, recorded := range r.Cmds() {
		text += fmt.Sprintf(" %#v", recorded.Args())
	}
	return text
}

// some returns a non-zero value of the type.
func some(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
	case reflect.Slice:
		v = reflect.Append(v, some(t.Elem()), some(t.Elem()))
	case reflect.String:
		v.SetString("text")
	case reflect.Int, reflect.Int64:
		v.SetInt(7e9) // not too short as a duration
	case reflect.Int8:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			v.Set(reflect.ValueOf("any"))
		}
	case reflect.Map:
		v = reflect.MakeMap(t)
		v.SetMapIndex(some(t.Key()), some(t.Elem()))
	default:
	}
	return v
}
