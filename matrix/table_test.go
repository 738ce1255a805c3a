package matrix

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// row is the result of one image.
type row struct {
	image, version          string
	container, program, cut string // empty if not run
	failed                  bool
}

var versionPattern = regexp.MustCompile(`(?m)^(redis|valkey)_version:(\S+)`)

// versionOf returns the version in INFO server. For Valkey, it includes the equivalent version of Redis.
func versionOf(info string) string {
	found := make(map[string]string)
	for _, match := range versionPattern.FindAllStringSubmatch(info, -1) {
		found[match[1]] = match[2]
	}
	if valkey := found["valkey"]; valkey != "" {
		return "Valkey " + valkey
	}
	return "Redis " + found["redis"]
}

// The table is between these lines of its file.
const (
	tableBegin = "<!-- The table is written by make matrix. -->\n"
	tableEnd   = "<!-- The end of the table. -->\n"
)

func table(rows []row, day time.Time) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| image | server | tests on a server in a container | all tests, on the image's program | a cluster of containers, its network cut and healed |\n|---|---|---|---|---|\n")
	cell := func(text string) string {
		if text == "" {
			return "not run"
		}
		return text
	}
	for _, r := range rows {
		version := r.version
		if r.failed {
			version += " **fails**"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", r.image, version, cell(r.container), cell(r.program), cell(r.cut))
	}
	fmt.Fprintf(&out, "\nRun on %s.\n", day.UTC().Format("2 January 2006"))
	return out.String()
}

// writeTable replaces the table in its file.
func writeTable(name string, rows []row) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for the table", name)
	}
	return os.WriteFile(name, []byte(before+tableBegin+"\n"+table(rows, time.Now())+"\n"+tableEnd+after), 0o644) //nolint:gosec // it is documentation
}

func TestWriteTableReplacesOnlyTheTable(t *testing.T) {
	t.Parallel()
	name := t.TempDir() + "/page.md"
	must(t, os.WriteFile(name, []byte("before\n"+tableBegin+"old\n"+tableEnd+"after\n"), 0o600))
	for range 2 {
		must(t, writeTable(name, []row{{image: "redis:7.0", version: "Redis 7.0.15", container: "9 pass", failed: true}, {image: "valkey", cut: "whole"}}))
	}
	text, err := os.ReadFile(name)
	must(t, err)
	got := string(text)
	for _, want := range []string{"before\n", "after\n", "| `redis:7.0` | Redis 7.0.15 **fails** | 9 pass | not run | not run |", "| not run | not run | whole |"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is there %d times in\n%s", want, strings.Count(got, want), got)
		}
	}
	if strings.Contains(got, "old") {
		t.Error("the old table is still there")
	}
	if err := writeTable(t.TempDir()+"/none", nil); err == nil {
		t.Error("a table was written to nowhere")
	}
}

func TestVersionOfNamesProductAndVersion(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]string{
		"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n":         "Redis 7.0.15",
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n": "Valkey 8.1.1",
	} {
		if got := versionOf(info); got != want {
			t.Errorf("%q: %q, want %q", info, got, want)
		}
	}
}
