package commit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/luatx/luatx/internal/shard"
)

// Procedure is Lua code that runs inside a commit.
type Procedure struct {
	Name   string
	Keys   []string // names of its keys in the source
	Args   []string // names of its arguments in the source
	Source string
}

// hidden lists the globals with which a procedure could bypass its guarded redis, or run text from its caller.
const hidden = "_G, load, loadstring, loadfile, dofile, require, module, getfenv, setfenv, newproxy"

// sources returns the text that internal/lua/_procedure.lua expects. Only constants of luatx precede the text, so that
// a procedure can access only these and its own parameters.
func sources(procedures []Procedure) string {
	var b strings.Builder
	if len(procedures) == 0 {
		return ""
	}
	b.WriteString("local function procedure(name, redis, KEYS, ARGV, NOW, emit, abort, reject)\n")
	b.WriteString("local " + hidden + "\n")
	b.WriteString("local server = redis\n") // Valkey has its redis under both names
	for _, p := range procedures {
		fmt.Fprintf(&b, "if name == %s then\n", shard.Quote(p.Name))
		locals(&b, p.Keys, "KEYS")
		locals(&b, p.Args, "ARGV")
		b.WriteString("do -- " + p.Name + "\n" + p.Source + "\nend\nreturn nil\nend\n")
	}
	b.WriteString("end\n")
	return b.String()
}

// locals declares a local variable for each element of a list.
func locals(b *strings.Builder, names []string, list string) {
	for i, name := range names {
		fmt.Fprintf(b, "local %s = %s[%d]\n", name, list, i+1)
	}
}

// scriptLine matches a script line in the errors of Redis and, with the last alternative, of miniredis.
var scriptLine = regexp.MustCompile(`(?:@?user_script:|<string> line:|^:)(\d+)`)

// Locate replaces each script line in an error's text with the name of the procedure and the line within it.
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
				return place // luatx's own part begins here
			}
			if i+1 == n && name != "" {
				return fmt.Sprintf("procedure %s:%d", name, n-line)
			}
		}
		return place
	})
}
