package commit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/luatx/luatx/internal/shard"
)

// Procedure is logic that runs inside a commit.
type Procedure struct {
	Name   string
	Keys   []string // names that its keys have in the source
	Args   []string // names that its arguments have in the source
	Source string
}

// hidden are the globals by which a procedure could get past its guarded redis, or run text of its caller's.
const hidden = "_G, load, loadstring, loadfile, dofile, require, module, getfenv, setfenv, newproxy"

// sources is the text that internal/lua/_procedure.lua expects. Nothing of luatx stands before it but constants: a
// procedure sees what it is given.
func sources(procedures []Procedure) string {
	var b strings.Builder
	if len(procedures) == 0 {
		return ""
	}
	b.WriteString("local function procedure(name, redis, KEYS, ARGV, NOW, emit, abort, reject)\n")
	b.WriteString("local " + hidden + "\n")
	for _, p := range procedures {
		fmt.Fprintf(&b, "if name == %s then\n", shard.Quote(p.Name))
		locals(&b, p.Keys, "KEYS")
		locals(&b, p.Args, "ARGV")
		b.WriteString("do -- " + p.Name + "\n" + p.Source + "\nend\nreturn nil\nend\n")
	}
	b.WriteString("end\n")
	return b.String()
}

// locals names the elements of a list.
func locals(b *strings.Builder, names []string, list string) {
	for i, name := range names {
		fmt.Fprintf(b, "local %s = %s[%d]\n", name, list, i+1)
	}
}

// scriptLine is how Redis and, last, miniredis name a line of the script.
var scriptLine = regexp.MustCompile(`(?:@?user_script:|<string> line:|^:)(\d+)`)

// Locate puts the procedure's name and its own line in the place of the script's in an error's text.
func (s *Sender) Locate(text string) string {
	return scriptLine.ReplaceAllStringFunc(text, func(place string) string {
		n, err := strconv.Atoi(scriptLine.FindStringSubmatch(place)[1])
		if err != nil {
			return place
		}
		name, line := "", 0
		for i, text := range strings.SplitN(s.commit.Text, "\n", n+1) {
			if began, ok := strings.CutPrefix(text, "do -- "); ok {
				name, line = began, i+1
			} else if text == "local time = redis.call('TIME')" {
				return place // luatx's own part begins
			}
			if i+1 == n && name != "" {
				return fmt.Sprintf("procedure %s:%d", name, n-line)
			}
		}
		return place
	})
}
