package command

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

// TestExactBitfields holds that a widened BITFIELD does what the original does, and that its reply is the same.
func TestExactBitfields(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Shared(t).Client(t), t.Context()
	tag := redistest.Tag(t)
	for i, ops := range []string{
		"GET i64 0", "GET u63 0", "get I64 #1", "GET i54 3 GET u8 0 GET u53 5",
		"SET i64 0 9007199254740993 GET i64 0", "SET i64 0 -9007199254740993 GET u63 0 SET i64 #0 5",
		"SET u63 7 9223372036854775807 INCRBY u63 7 1 GET u63 7",
		"SET i64 64 -9223372036854775808 OVERFLOW FAIL INCRBY i64 64 -1 OVERFLOW SAT INCRBY i64 64 -1 OVERFLOW WRAP INCRBY i64 64 -1",
		"INCRBY i64 #2 9007199254740993 INCRBY i60 #2 1 GET i64 128", "SET u8 0 255 INCRBY u8 0 1",
		"GET i64", "GET i65 0", "SET i64 x 1", "NOSUCH i64 0", "GET i64 #9999999999999", "OVERFLOW WRAP",
	} {
		a, b := fmt.Sprintf("{%s}a%d", tag, i), fmt.Sprintf("{%s}b%d", tag, i)
		client.Set(ctx, a, "\x80\x01\xff\x7f\x10\x20\xfe\xdc\x80\x55\xaa\x00\x99\xf0\x0f\xe1", 0)
		client.Set(ctx, b, client.Get(ctx, a).Val(), 0)
		want, wantErr := client.Do(ctx, words("BITFIELD "+a+" "+ops)...).Result()
		sent, read := Exact(words("bitfield " + b + " " + ops))
		got, err := client.Do(ctx, sent...).Result()
		if read != nil {
			got = read(got)
		}
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v, want %v, %v", ops, got, err, want, wantErr)
		}
		if client.Get(ctx, a).Val() != client.Get(ctx, b).Val() {
			t.Errorf("%s: wrote something else", ops)
		}
		if wide := strings.Contains(ops, "64 ") || strings.Contains(ops, "63 "); err == nil && wide && read == nil {
			t.Errorf("%s: left as it is", ops)
		}
	}
}
