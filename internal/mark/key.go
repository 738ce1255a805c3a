package mark

import "strings"

// escape keeps the source of a message apart from its id.
var escape = strings.NewReplacer("%", "%25", ":", "%3A")

// Key is the key of the mark that the pipeline mode leaves for a message, unless its configuration names another one.
func Key(source, id string) string { return "inbox:" + escape.Replace(source) + ":" + id }
