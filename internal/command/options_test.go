package command

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

// unconditional lists the options of writes that are not conditions of the reply, for any command.
var unconditional = words(`EX PX EXAT PXAT KEEPTTL FIELDS IDS AND OR XOR NOT DIFF DIFF1 ANDOR ONE BEFORE AFTER
	MAXLEN MINID = ~ LIMIT * KEEPREF DELREF IDMP IDMPAUTO IDMP-DURATION IDMP-MAXSIZE $ MKSTREAM ENTRIESREAD ENTRIESADDED MAXDELETEDID
	BYSCORE BYLEX REV WEIGHTS AGGREGATE SUM MIN MAX REPLACE ABSTTL IDLETIME FREQ
	FROMMEMBER FROMLONLAT BYRADIUS BYBOX BYPOLYGON M KM FT MI COUNT ANY ASC DESC STOREDIST`)

// trims lists the commands whose option ACKED selects the entries that a trim may delete. Callers do not act on their
// number.
var trims = []string{"XADD", "XTRIM"}

// TestEveryOptionOfAWriteIsClassified asks the server for the options of each write whose reply does not always decide. Each
// must be listed as a condition or not, so that a new version of a server cannot add one unnoticed.
func TestEveryOptionOfAWriteIsClassified(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	reply, err := client.Do(t.Context(), "COMMAND", "DOCS").Result()
	if err != nil {
		t.Skip("the server does not describe its commands: ", err)
	}
	maybe := make(map[string]bool) // the writes whose replies do not always decide
	for _, s := range All() {
		stores := s.Name == "SORT" || strings.HasPrefix(s.Name, "GEORADIUS") // they decide unless they store
		maybe[s.Name] = s.Writes() && !s.Decides && !stores
	}
	classified := 0
	var check func(commands map[any]any)
	check = func(commands map[any]any) {
		for name, docs := range commands {
			docs := pairsOf(docs)
			check(pairsOf(docs["subcommands"]))
			for _, option := range tokens(docs["arguments"]) {
				name := strings.ToUpper(strings.ReplaceAll(fmt.Sprint(name), "|", " "))
				if !maybe[name] {
					continue
				}
				classified++
				switch {
				case slices.Contains(Conditions(name), option):
				case slices.Contains(unconditional, any(option)):
				case option == "ACKED" && slices.Contains(trims, name):
				default:
					t.Errorf("%s %s: is it a condition? Add it to forms, or to the list of this test", name, option)
				}
			}
		}
	}
	check(pairsOf(reply))
	if classified < 80 {
		t.Errorf("the server described %d options only", classified)
	}
}

// pairsOf returns the map of a reply in RESP3, or nil if the reply is not a map.
func pairsOf(reply any) map[any]any {
	all, _ := reply.(map[any]any)
	return all
}

// tokens returns the options among the documented arguments of a command, in capitals.
func tokens(arguments any) []string {
	var all []string
	list, _ := arguments.([]any)
	for _, argument := range list {
		described := pairsOf(argument)
		if token, ok := described["token"].(string); ok && token != "" {
			all = append(all, strings.ToUpper(token))
		}
		all = append(all, tokens(described["arguments"])...)
	}
	return all
}
