// Package lua holds the scripts of luatx: one file, one atomic step. Files whose name begins with _ are
// fragments that other scripts share.
package lua

import (
	"embed"
	"strings"
)

//go:embed *.lua
var files embed.FS

// Source returns the text of the named scripts, in that order, as one.
func Source(names ...string) string {
	var text strings.Builder
	for _, name := range names {
		source, err := files.ReadFile(name + ".lua")
		if err != nil {
			// The names are constants of this module and every script is built by its tests.
			return "error('no script " + name + "')"
		}
		text.Write(source)
		text.WriteByte('\n')
	}
	return text.String()
}
