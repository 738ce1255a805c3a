package console

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/pretty"
)

func TestNumbersTimesAndSizesAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		pretty.Thousands(0): "0", pretty.Thousands(999): "999", pretty.Thousands(1000): "1,000", pretty.Thousands(int64(-1234567)): "-1,234,567",
		span(-time.Second): "0 s", span(0): "0 s", span(250 * time.Millisecond): "250 ms", span(59 * time.Second): "59 s", span(90 * time.Second): "1 min 30 s",
		span(2*time.Hour + 13*time.Minute + 5*time.Second): "2 h 13 min", span(49 * time.Hour): "2 d 1 h", span(24*time.Hour + time.Minute): "1 d",
		size(999): "999 B", size(1500): "1.5 kB", size(3_200_000_000): "3.2 GB", perSecond(0): "0", perSecond(1.26): "1.3", perSecond(4999.6): "5,000",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestShellReadsEachQuotedWordUnchanged(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("sh is not on PATH")
	}
	for _, word := range []string{"", "plain", "it's", "a b", "$(id)", "`id`", "-x", "\\", "'", "a\nb", "!!", "*", "~", "{a,b}", "ü", "a;b&c|d>e"} {
		got, err := exec.CommandContext(t.Context(), sh, "-c", "printf %s "+shell(word)).Output()
		if err != nil || string(got) != word {
			t.Errorf("the shell reads %q as %q, %v", word, got, err)
		}
	}
}

func TestDataIsShownAsIndentedJSONTextOrHexUpToALimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ data, text, note string }{
		{``, "", "The body is empty."},
		{`{"b":1,"a":[1,2.50,9007199254740993]}`, "{\n  \"b\": 1,\n  \"a\": [\n    1,\n    2.50,\n    9007199254740993\n  ]\n}", ""},
		{`plain <b>`, "plain <b>", ""},
		{"\xff\x00", "ff00", "not text"},
		{`"` + strings.Repeat("x", 300_000) + `"`, `"` + strings.Repeat("x", maxShown-1), "Showing the first 262.1 kB of 300.0 kB."},
	} {
		text, note := readable([]byte(c.data))
		if text != c.text || (note == "") != (c.note == "") || !strings.Contains(note, c.note) {
			t.Errorf("readable(%.40q) = %.80q, %q", c.data, text, note)
		}
	}
}

func TestLongTextIsCutBetweenTwoCharacters(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "x"} {
		text, note := readable([]byte(prefix + strings.Repeat("ü", maxShown)))
		if !strings.HasPrefix(text, prefix+"üü") || len(text) < maxShown-1 || len(text) > maxShown || !strings.HasPrefix(note, "Showing the first") {
			t.Errorf("%d bytes, %.20q…, %s", len(text), text, note)
		}
	}
	if text, _ := readable(bytes.Repeat([]byte{0x80}, maxShown+1)); !strings.HasPrefix(text, "8080") {
		t.Errorf("%.20q…", text)
	}
}
