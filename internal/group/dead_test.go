package group

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestDeadLetterOfMoreThan2000TextsIsWrittenInOneField(t *testing.T) {
	t.Parallel()
	for n, packed := range map[int]bool{0: false, 2: false, 2000: false, 2002: true} {
		fields := make([]string, n)
		for i := range fields {
			fields[i] = "f" + strconv.Itoa(i)
		}
		at := time.UnixMilli(1_700_000_000_000)
		want := Dead{
			ID: "1-0", Stream: "s", Entry: "7-0", Group: "g", Consumer: "c", Reason: "why", Deliveries: 12, First: at, Last: at.Add(time.Hour), Fields: fields,
			Packed: packed,
		}
		got := parseDead(want.ID, want.Write())
		assert.Equal(t, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want), "the dead letter of %d texts", n)
	}
}

func TestDeadLetterOfADeadLetterIsThatOfItsStream(t *testing.T) {
	t.Parallel()
	first := Dead{Stream: "s", Entry: "7-0", Group: "g", Consumer: "c", Reason: "why", Fields: []string{"a", "1"}}
	second := Dead{Stream: "{s}:dead", Entry: "8-0", Group: "h", Consumer: "d", Reason: "again", Fields: first.Write()}
	got := parseDead("1-0", second.Write())
	assert.Equal(t, fmt.Sprint(got.Stream, got.Entry, got.Group, got.Consumer, got.Reason), "{s}:dead8-0hdagain", "the second dead letter")
	if !slices.Equal(got.Fields, second.Fields) {
		t.Errorf("its fields are %q", got.Fields)
	}
}

func TestEntryThatIsNoDeadLetterIsForeign(t *testing.T) {
	t.Parallel()
	head := (Dead{}).Write()
	packed := ""
	for _, text := range head {
		packed += strconv.Itoa(len(text)) + ":" + text
	}
	for name, fields := range map[string][]string{
		"no field":              {},
		"other fields":          slices.Repeat([]string{"a", "1"}, 20),
		"no time":               head[:len(head)-2],
		"a head that is packed": {fieldPacked, packed},
		"nothing packed":        append([]string{fieldPacked, ""}, head...),
		"one text packed":       append([]string{fieldPacked, "1:a"}, head...),
		"words packed":          append([]string{fieldPacked, "words"}, head...),
		"no colon":              append([]string{fieldPacked, "1"}, head...),
		"a negative length":     append([]string{fieldPacked, "-1:a1:b"}, head...),
		"a length in letters":   append([]string{fieldPacked, "x:a1:b"}, head...),
		"a length too large":    append([]string{fieldPacked, "1:a2:b"}, head...),
	} {
		assert.Equal(t, fmt.Sprintf("%+v", parseDead("1-0", fields)), fmt.Sprintf("%+v", Dead{ID: "1-0", Foreign: true}), "%s", name)
	}
	texts := parseDead("1-0", append([]string{fieldPacked, "0:0:1:a0:0:3:b:1"}, head...))
	if texts.Foreign || !slices.Equal(texts.Fields, []string{"", "", "a", "", "", "b:1"}) {
		t.Errorf("packed texts, some of them empty: %q", texts.Fields)
	}
}

func TestValuesOfADeadLetterAreItsPairs(t *testing.T) {
	t.Parallel()
	for n, want := range []string{"map[]", "map[]", "map[a:1]", "map[a:1]", "map[a:1 b:2]", "map[a:1 b:2]", "map[a:1 b:2 c:3]"} {
		d := Dead{Fields: []string{"a", "1", "b", "2", "c", "3"}[:n:n]}
		assert.Equal(t, fmt.Sprint(d.Values()), want, "%d texts", n)
	}
}
