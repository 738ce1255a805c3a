package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

const (
	cliDocs  = "../../docs/cli.md"
	cliBegin = "<!-- the help of the commands begins -->\n"
	cliEnd   = "<!-- the help of the commands ends -->\n"
)

// TestCLIPageMatchesTheHelpOfTheCommands updates docs/cli.md with LUATX_UPDATE=1.
func TestCLIPageMatchesTheHelpOfTheCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(cliDocs)
	redistest.Must(t, err)
	before, rest, ok := strings.Cut(string(text), cliBegin)
	_, after, more := strings.Cut(rest, cliEnd)
	if !ok || !more {
		t.Fatalf("%s has no place for the help", cliDocs)
	}
	var all strings.Builder
	all.WriteString(before + cliBegin)
	_, out, _ := run(t.Context(), "", "help")
	all.WriteString("\n| exit status | |\n|---|---|\n")
	for _, s := range statuses {
		fmt.Fprintf(&all, "| %d | %s |\n", s.code, s.means)
	}
	all.WriteString("\n```text\n" + out + "```\n")
	for _, v := range verbs() {
		status, out, errs := run(t.Context(), "", append(strings.Fields(v.name), "--help")...)
		if status != 0 || errs != "" {
			t.Errorf("luatx %s --help: status %d, %s", v.name, status, errs)
		}
		all.WriteString("\n## " + v.name + "\n\n```text\n" + strings.ReplaceAll(out, "\t", "    ") + "```\n")
	}
	all.WriteString("\n" + cliEnd + after)
	if os.Getenv("LUATX_UPDATE") != "" {
		redistest.Must(t, os.WriteFile(cliDocs, []byte(all.String()), 0o600))
		return
	}
	if all.String() != string(text) {
		t.Errorf("%s is not what the commands print: LUATX_UPDATE=1 go test ./cmd/luatx -run TestCLIPageMatchesTheHelpOfTheCommands", cliDocs)
	}
}
