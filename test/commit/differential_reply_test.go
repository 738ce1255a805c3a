package commit_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func fetcher[C redis.Cmder](newCmd func(context.Context, ...any) C) func(context.Context, []any) redis.Cmder {
	return func(ctx context.Context, args []any) redis.Cmder { return newCmd(ctx, args...) }
}

func text(arg any) string { return fmt.Sprint(arg) }

// fetchers create the commands with which go-redis reads each type of reply.
var fetchers = map[string]func(context.Context, []any) redis.Cmder{
	"cmd":        fetcher(redis.NewCmd),
	"int":        fetcher(redis.NewIntCmd),
	"ints":       fetcher(redis.NewIntSliceCmd),
	"status":     fetcher(redis.NewStatusCmd),
	"str":        fetcher(redis.NewStringCmd),
	"strs":       fetcher(redis.NewStringSliceCmd),
	"slice":      fetcher(redis.NewSliceCmd),
	"float":      fetcher(redis.NewFloatCmd),
	"floats":     fetcher(redis.NewFloatSliceCmd),
	"bool":       fetcher(redis.NewBoolCmd),
	"bools":      fetcher(redis.NewBoolSliceCmd),
	"map":        fetcher(redis.NewMapStringStringCmd),
	"pairs":      fetcher(redis.NewMapStringInterfaceCmd),
	"keyvalues":  fetcher(redis.NewKeyValueSliceCmd),
	"keystrs":    fetcher(redis.NewKeyValuesCmd),
	"zs":         fetcher(redis.NewZSliceCmd),
	"keyzs":      fetcher(redis.NewZSliceWithKeyCmd),
	"rank":       fetcher(redis.NewRankWithScoreCmd),
	"geopos":     fetcher(redis.NewGeoPosCmd),
	"messages":   fetcher(redis.NewXMessageSliceCmd),
	"streams":    fetcher(redis.NewXStreamSliceCmd),
	"pending":    fetcher(redis.NewXPendingCmd),
	"pendings":   fetcher(redis.NewXPendingExtCmd),
	"claimed":    fetcher(redis.NewXAutoClaimCmd),
	"claimedids": fetcher(redis.NewXAutoClaimJustIDCmd),
	"xfull":      fetcher(redis.NewXInfoStreamFullCmd),
	"geo": func(ctx context.Context, args []any) redis.Cmder {
		return redis.NewGeoLocationCmd(ctx, &redis.GeoRadiusQuery{WithDist: true, WithCoord: true, WithGeoHash: true}, args...)
	},
	"georadius": func(ctx context.Context, args []any) redis.Cmder {
		return redis.NewGeoLocationCmd(ctx, &redis.GeoRadiusQuery{WithDist: true}, args...)
	},
	"xgroups": func(ctx context.Context, args []any) redis.Cmder { return redis.NewXInfoGroupsCmd(ctx, text(args[2])) },
	"xstream": func(ctx context.Context, args []any) redis.Cmder { return redis.NewXInfoStreamCmd(ctx, text(args[2])) },
	"xconsumers": func(ctx context.Context, args []any) redis.Cmder {
		return redis.NewXInfoConsumersCmd(ctx, text(args[2]), text(args[3]))
	},
}

// reply returns the results of a command's Val.
func reply(cmd redis.Cmder) []any {
	var all []any
	for _, v := range reflect.ValueOf(cmd).MethodByName("Val").Call(nil) {
		all = append(all, v.Interface())
	}
	return all
}

// sameReply compares two replies: set in any order, len by their length, near within 10 seconds, and any by presence.
func sameReply(a, b []any, look string) bool {
	switch look {
	case "set":
		return slices.Equal(sorted(a[0]), sorted(b[0]))
	case "len":
		return len(sorted(a[0])) == len(sorted(b[0]))
	case "any":
		return (render(a) == render([]any{""})) == (render(b) == render([]any{""}))
	case "near":
		return slices.EqualFunc(integers(a), integers(b), func(x, y int64) bool { return (x < 0) == (y < 0) && max(x-y, y-x) < 10_000 })
	}
	return render(a) == render(b)
}

func sorted(reply any) []string {
	var all []string
	if v := reflect.ValueOf(reply); v.Kind() == reflect.Slice {
		for i := range v.Len() {
			all = append(all, render(v.Index(i).Interface()))
		}
	}
	sort.Strings(all)
	return all
}

// integers returns the numbers in a reply.
func integers(reply any) []int64 {
	var all []int64
	for word := range strings.FieldsFuncSeq(render(reply), func(r rune) bool { return r != '-' && (r < '0' || r > '9') }) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err == nil {
			all = append(all, n)
		}
	}
	return all
}

// render formats a reply as text, without the data set's name, times and durations.
func render(reply any) string {
	var b strings.Builder
	write(&b, reflect.ValueOf(reply))
	return b.String()
}

func write(b *strings.Builder, v reflect.Value) {
	if !v.IsValid() {
		b.WriteString("nil")
		return
	}
	switch v.Interface().(type) {
	case time.Duration, time.Time:
		b.WriteString("time")
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		write(b, v.Elem())
	case reflect.Struct:
		b.WriteByte('{')
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				b.WriteString(v.Type().Field(i).Name + ":")
				write(b, v.Field(i))
				b.WriteByte(' ')
			}
		}
		b.WriteByte('}')
	case reflect.Slice:
		b.WriteByte('[')
		for i := range v.Len() {
			write(b, v.Index(i))
			b.WriteByte(' ')
		}
		b.WriteByte(']')
	case reflect.Map:
		var lines []string
		for key, value := range v.Seq2() {
			lines = append(lines, render(key.Interface())+"="+render(value.Interface()))
		}
		sort.Strings(lines)
		b.WriteString("map" + strings.Join(lines, " "))
	case reflect.String:
		b.WriteString(strconv.Quote(serverID.ReplaceAllString(strings.ReplaceAll(v.String(), "{diff-b-", "{diff-a-"), "now")))
	default:
		fmt.Fprint(b, v.Interface())
	}
}
