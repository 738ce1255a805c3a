// Package prose holds the rules for the prose of the project and tests them. .ci/prose applies the rules.
package prose

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sentences are checked unchanged. Each is listed with the rule that rejects it, or "" if no rule does.
var sentences = []struct{ rule, text string }{
	{"Length", "The relay " + strings.Repeat("word ", 38) + "ends."},
	{"", "The relay " + strings.Repeat("word ", 37) + "ends."},
	{"", "The relay " + strings.Repeat("word ", 20) + "ends. The other " + strings.Repeat("word ", 20) + "ends."},
	{"Subjects", "What failed goes out again."},
	{"Subjects", "Whatever has no id gets one."},
	{"Subjects", "Who reads the channel settles each event."},
	{"Subjects", "An empty line ends the header: what follows is for readers."},
	{"Subjects", "The event waits; who claims it publishes it."},
	{"Subjects", "The test shows that what was written is read."},
	{"Subjects", "The seat goes to whoever comes first."},
	{"Subjects", "The relay retries that which failed."},
	{"Subjects", "The commit is repeated where that is so."},
	{"", "What happens to an event after its commit?"},
	{"", "Decide what to do."},
	{"", "The page describes what happens to an event."},
	{"", "The error states one thing: what to do."},
	{"Words", "The event is laid aside."},
	{"Words", "The relay moves the event out of the way."},
	{"Words", "The operator puts the parked events back."},
	{"Words", "The operator puts back events."},
	{"Words", "The script buries the entry."},
	{"Words", "The message was buried."},
	{"Words", "Both run in the scripted way."},
	{"Words", "The event is taken by another relay."},
	{"Words", "The id is already known."},
	{"Words", "A known message has no effect."},
	{"Words", "The server says no."},
	{"Words", "The observer is told of each event."},
	{"Words", "The campaign ends."},
	{"Words", "The clock stands still."},
	{"Words", "The entry is skipped in silence."},
	{"", "The operator puts the dead letter back."},
	{"", "The relay returns an error as soon as the outcome is known."},
	{"Passive", "The events are published by the relay."},
	{"Passive", "The reply was sent."},
	{"", "The relay publishes the events."},
}

func TestRulesFindBadSentences(t *testing.T) {
	dir := t.TempDir()
	for ext, lead := range map[string]string{".md": "", ".go": "// ", ".lua": "-- "} {
		var text strings.Builder
		if ext == ".go" {
			text.WriteString("package p\n\n")
		}
		for _, s := range sentences {
			text.WriteString(lead + s.text + "\n\n")
		}
		if err := os.WriteFile(filepath.Join(dir, "text"+ext), []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found := check(t, dir)
	if len(found) != 3 {
		t.Errorf("Vale found something in %d of 3 files", len(found))
	}
	for file, alerts := range found {
		first := 1
		if filepath.Ext(file) == ".go" {
			first = 3
		}
		rules := map[int]string{}
		for _, a := range alerts {
			// A sentence that breaks another rule may also be in the passive voice.
			if rule := strings.TrimPrefix(a.Check, "luatx."); rule != "Passive" || rules[a.Line] == "" {
				rules[a.Line] = rule
			}
			if (a.Severity == "error") == (a.Check == "luatx.Passive") {
				t.Errorf("%s is reported as %s", a.Check, a.Severity)
			}
		}
		for i, s := range sentences {
			got := rules[first+2*i]
			if got != s.rule && (s.rule != "" || got != "Passive") {
				t.Errorf("%s: the rule against %q is %q, want %q", filepath.Base(file), s.text, got, s.rule)
			}
		}
	}
}

type alert struct {
	Check, Severity string
	Line            int
}

// check returns the alerts of Vale for the files of a directory.
func check(t *testing.T, dir string) map[string][]alert {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "vale", "--config", ".vale.ini", "--no-global", "--no-exit", "--output=JSON", dir)
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("running Vale: %v\n%s", err, out)
	}
	var alerts map[string][]alert
	if err := json.Unmarshal(out, &alerts); err != nil {
		t.Fatalf("reading the output of Vale: %v\n%s", err, out)
	}
	return alerts
}
