package shard

import (
	"strings"

	"github.com/luatx/luatx/internal/lua"
)

// LazyLanes is what enqueues events that are not plain.
var LazyLanes = Lazily("lanes", []string{"_outbox", "_lanes", "_enter"}, "crowded", "enter")

// onOutbox is a script on a shard's outbox, with everything that they share.
func onOutbox(names ...string) string {
	return lua.Source(append([]string{"_time", "_full", "_outbox", "_lanes", "_errors", "_park", "_lease"}, names...)...)
}

// Made is where Lazily keeps what it has made.
const Made = "local made = {}\n"

// Lazily is a function that returns a table of what fragments define, made at its first call.
func Lazily(name string, fragments []string, defined ...string) string {
	var b strings.Builder
	b.WriteString("function " + name + "()\nif made." + name + " then return made." + name + " end\n")
	b.WriteString(lua.Source(fragments...))
	b.WriteString("made." + name + " = {")
	for _, d := range defined {
		b.WriteString(d + " = " + d + ", ")
	}
	b.WriteString("}\nreturn made." + name + "\nend\n")
	return b.String()
}
